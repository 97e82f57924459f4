"""Operators of `op_db` as subjects: names, families, dtypes, and what their samples cannot say."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from .case import Case
from .samples import operator_samples, spread

# Results of these are uninitialised memory.
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}

VALUE_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
_ONE_DTYPE = (torch.float32, torch.int64, torch.bool, torch.complex64)
QUICK_SAMPLES = 4
# Enough of the samples to have one of each kind; `values` looks at all of them.
FULL_SAMPLES = 16

OperatorCheck = Callable[[OpInfo, torch.dtype, int | None], int]


def subject_of(op: OpInfo) -> str:
    """The operator's name, with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def family_of(op: OpInfo) -> str:
    """The group under which the report lists an operator."""
    name = op.name
    for prefix in ("nn.functional", "linalg", "fft", "special", "masked", "signal", "sparse", "torch.ops.aten", "ops.aten"):
        if name.startswith(prefix + "."):
            return prefix.removeprefix("torch.")
    return {"UnaryUfuncInfo": "unary", "BinaryUfuncInfo": "binary", "ReductionOpInfo": "reduction"}.get(type(op).__name__, "tensor")


def one_dtype(op: OpInfo, dtypes: Iterable[torch.dtype]) -> torch.dtype | None:
    """The dtype that stands for all others in the quick tier."""
    dtypes = set(dtypes)
    return next((d for d in _ONE_DTYPE if d in dtypes), next(iter(sorted(dtypes, key=str)), None))


def forward_dtypes(op: OpInfo) -> set[torch.dtype]:
    """What the CPU supports in the operator, as the database says."""
    return set(op.supported_dtypes("cpu"))


def backward_dtypes(op: OpInfo) -> set[torch.dtype]:
    """What the CPU differentiates."""
    return set(op.supported_backward_dtypes("cpu")) if op.supports_autograd else set()


def operator_cases(
    template: str,
    check: OperatorCheck,
    *,
    dtypes: Callable[[OpInfo], set[torch.dtype]] = forward_dtypes,
    quick_dtypes: tuple[torch.dtype, ...] = (),
    where: Callable[[OpInfo], bool] = lambda op: True,
    full_samples: int | None = FULL_SAMPLES,
) -> Iterator[Case]:
    """A case for each operator and dtype. `check(op, dtype, most)` looks at no more than `most` samples (None: at all).

    The quick tier has one dtype for each operator, and those of `quick_dtypes`, with at most `QUICK_SAMPLES` samples; the full tier has
    every dtype with at most `full_samples`.
    """

    def run(op: OpInfo, dtype: torch.dtype, most: int | None) -> int:
        return check(op, dtype, full_samples if most is None else most)

    for op in op_db:
        if not where(op):
            continue
        supported = dtypes(op)
        quick = {one_dtype(op, supported), *quick_dtypes}
        for dtype in sorted(supported, key=str):
            yield Case(template, subject_of(op), dtype, functools.partial(run, op, dtype), family_of(op), quick=dtype in quick)


def some_samples(op: OpInfo, dtype: torch.dtype, most: int | None, *, requires_grad: bool = False):
    """The samples that a case looks at."""
    if most is None:
        return operator_samples(op, dtype, requires_grad)
    # Some operators have thousands of samples, which take longer to make than to run.
    return spread(operator_samples(op, dtype, requires_grad, 8 * most), most)
