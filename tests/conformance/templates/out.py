"""`out=`: same result, same storage if it fits; resizing warns; dtype casts, layouts and errors are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.utils._pytree import tree_map

from ..case import NothingToCompare, source
from ..compare import Outcome, as_near, assert_same, assert_same_error, draws_random_numbers, outcome
from ..operators import UNINITIALISED, operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, tensors_of, wide


def exact(like: torch.Tensor) -> torch.Tensor:
    """The right size and dtype, other contents."""
    return torch.full_like(like, 1)


def other_strides(like: torch.Tensor) -> torch.Tensor:
    """The right size in an unusual layout, with an offset."""
    padded = torch.ones([size + 1 for size in reversed(like.shape)], dtype=like.dtype)
    return padded[tuple(slice(1, None) for _ in like.shape)].permute(tuple(reversed(range(like.dim()))))


def empty(like: torch.Tensor) -> torch.Tensor:
    """No elements: grows without a warning."""
    return torch.empty(0, dtype=like.dtype)


def too_large(like: torch.Tensor) -> torch.Tensor:
    """The wrong size: grows or shrinks with a warning."""
    return torch.ones(*like.shape, 2, dtype=like.dtype)


def wider(like: torch.Tensor) -> torch.Tensor:
    """A dtype into which the result may be cast."""
    return torch.ones(like.shape, dtype=torch.complex128 if like.is_complex() else torch.float64)


def narrower(like: torch.Tensor) -> torch.Tensor:
    """A dtype into which a floating result must not be cast."""
    return torch.ones(like.shape, dtype=torch.uint8)


KINDS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (exact, other_strides, empty, too_large, wider, narrower)


def run_out(op, given: Any, out: Any) -> Outcome:
    """One call with `out=`; the result also says whether each tensor came back itself, and over the storage it had."""
    tensors = tensors_of(out)
    before = [(t, t.untyped_storage().data_ptr()) for t in tensors]

    def run():
        result = op.op(given[0], *given[1], out=out, **given[2])
        returned = tensors_of(result)
        identity = [one is other for one, other in zip(returned, tensors, strict=True)]
        kept = [t.untyped_storage().data_ptr() == pointer for t, pointer in before if t.numel()]
        return tensors, identity, kept

    return outcome(run)


def tolerance_of(expected: Any) -> dict[str, float]:
    """What `torch.testing` allows for the dtype in which the operator computes, whatever that of `out`."""
    rtol, atol = default_tolerances(*tensors_of(expected))
    return {"rtol": rtol, "atol": atol}


def resized(happened: Outcome) -> list[str]:
    """The warnings about a resized output; others may be given once in a process."""
    return [text for text in happened.warnings if "resized" in text]


def compare_results(result: Any, reference: Any, expected: Any, exact: Callable[[], Any], values: bool) -> None:
    """`result` is `reference`, or as near to the exact one as that is; `expected`: without `out=`, `result[0]`: the tensors written."""
    try:
        assert_same(result, reference, values=values, **tolerance_of(expected))
    except AssertionError:
        if not values or not as_near(result[0], reference[0], outcome(exact).result):
            raise
        assert_same(result, reference, values=False)


def check(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        given = arguments(sample)
        expected = outcome(partial(call, op.op, place(given, CPU)))
        if expected.error is not None or not tensors_of(expected.result) or "out" in given[2]:
            continue
        values = op.name not in UNINITIALISED and not draws_random_numbers(partial(call, op.op, place(given, CPU)))
        for kind in KINDS:
            out = tree_map(lambda t, k=kind: k(t.detach()) if isinstance(t, torch.Tensor) else t, expected.result)
            reference = run_out(op, place(given, CPU), place(out, CPU))
            result = run_out(op, place(given, DEVICE), place(out, DEVICE))
            try:
                assert_same_error(result, reference, message=False)
                if reference.error is None:
                    compare_results(result.result, reference.result, expected.result, partial(call, op.op, wide(place(given, CPU))), values)
                    assert resized(result) == resized(reference), f"warnings {result.warnings} instead of {reference.warnings}"
            except AssertionError as difference:
                raise AssertionError(f"out= of kind `{kind.__name__}`: {difference}") from difference
            compared += 1
    if not compared:
        raise NothingToCompare("no sample returns tensors without an error on the CPU")
    return compared


@source("out")
def cases():
    return operator_cases("out", check, where=lambda op: op.supports_out)
