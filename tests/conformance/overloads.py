"""Which ATen overloads the passed cases reach, and with which dtypes: what `docs/operators.md` calls verified."""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from tqdm import tqdm

from .operators import forward_dtypes, some_samples, subject_of
from .samples import DEVICE, arguments, call, place, seed_all, tensors_of
from .templates.derivatives import Probe
from .templates.variants import in_place_forms

FILE = Path(__file__).parents[2] / "tools" / "opgen" / "verified.txt"
SAMPLES = 4


class _Overloads(TorchDispatchMode):
    """Notes the overloads that tensors of the device reach, with the dtype of the first tensor of a call (or of its result)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[str]] = defaultdict(set)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [t for t in tensors_of([args, kwargs, result]) if t.device.type == DEVICE.type]
        if tensors and func.namespace == "aten":
            overload = func.__name__.removesuffix(".default")
            self.seen[overload].add(str(tensors[0].dtype).removeprefix("torch."))
        return result


def calls(op: Any, dtype: torch.dtype, passed: Callable[[str], bool]) -> Iterator[Callable[[], Any]]:
    """The calls of one operator and dtype whose cases passed."""
    for sample in some_samples(op, dtype, SAMPLES):
        given = arguments(sample)
        if passed("values"):
            yield lambda given=given: call(op.op, place(given, DEVICE))
        if passed("inplace"):
            for form in in_place_forms(op):
                yield lambda given=given, form=form: call(form, place(given, DEVICE))
        if passed("out") and "out" not in given[2]:
            yield lambda given=given: with_out(op, given)
    if passed("backward"):
        for sample in some_samples(op, dtype, SAMPLES, requires_grad=True):
            yield lambda sample=sample: Probe(op, sample, DEVICE).backward()


def with_out(op: Any, given: Any) -> Any:
    """A call with `out=` of the right size and dtype."""
    expected = call(op.op, place(given, DEVICE))
    out = tree_map(lambda t: torch.empty_like(t) if isinstance(t, torch.Tensor) else t, expected)
    moved = place(given, DEVICE)
    return op.op(moved[0], *moved[1], out=out, **moved[2])


def verified(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """Overload -> dtypes, for the passed cases of the full tier. Takes some minutes."""
    with _Overloads() as recorded:
        for op in tqdm(op_db, unit="op", desc="overloads"):
            for dtype in sorted(forward_dtypes(op), key=str):

                def passed(template: str, suffix: str = f"{subject_of(op)}/{str(dtype).removeprefix('torch.')}") -> bool:
                    return rows.get(f"{template}/{suffix}", {}).get("outcome") == "passed"

                for run in calls(op, dtype, passed) if passed("values") else ():
                    seed_all()
                    with warnings.catch_warnings(), contextlib.suppress(Exception):  # samples that the CPU refuses
                        warnings.simplefilter("ignore")
                        run()
    return dict(recorded.seen)


def write(rows: Mapping[str, Mapping[str, Any]]) -> int:
    """Write the file that tools/opgen reads; returns the number of overloads."""
    found = verified(rows)
    FILE.write_text("".join(f"{name} {' '.join(sorted(dtypes))}\n" for name, dtypes in sorted(found.items())))
    return len(found)
