"""Compiled in-place forms and `out=`: tensors written, those sharing memory with them, and what is returned are eager's; so are errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ..case import Case, NothingToCompare, source
from ..compare import outcome
from ..operators import UNINITIALISED, forward_dtypes, one_dtype, operator_cases, some_samples
from ..samples import CPU, Placement, arguments, call, place, seed_all, tensors_of
from .compiled import DTYPES, seedless
from .compiled_trial import Trial, judge
from .out import empty, exact, other_strides, wider
from .variants import in_place_forms, view_of_larger

# Every sample is compiled in its functional form (`compiled.py`); a graph for each way to write its result is for some of them.
SAMPLES = 8


def full_tier_only(cases: Iterator[Case]) -> Iterator[Case]:
    """The cases, none of them in the quick tier."""
    return (dataclasses.replace(case, quick=False) for case in cases)


def in_a_larger_tensor(sample: Any, placement: Placement) -> Any:
    """The arguments, the first tensor being a strided view with an offset; behind them the tensor that it is a view of."""
    given = placement(arguments(sample))
    base, viewed = view_of_larger(given)
    return (*viewed, base)


def check_in_place(op, dtype: torch.dtype, most: int | None) -> int:
    samples = some_samples(op, dtype, SAMPLES)
    trials = [(Trial(form), samples) for form in in_place_forms(op)]
    with_rows = [s for s in samples if isinstance(s.input, torch.Tensor) and s.input.dim()]
    if with_rows:
        trials += [(Trial(form, prepare=in_a_larger_tensor), with_rows) for form in in_place_forms(op)]
    return judge(trials)


@source("compiled_inplace")
def in_place_cases():
    chosen = operator_cases(
        "compiled_inplace", check_in_place, dtypes=lambda op: forward_dtypes(op) & DTYPES, where=lambda op: bool(in_place_forms(op))
    )
    return full_tier_only(chosen)


def with_out(op, kind: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any, Placement], Any]:
    """Arguments with an `out=` of one kind, made from the result on the CPU."""

    def prepare(sample: Any, placement: Placement) -> Any:
        given = place(arguments(sample), CPU)
        seed_all()
        out = tree_map(lambda t: kind(t.detach()) if isinstance(t, torch.Tensor) else t, call(op.op, given))
        moved, args, kwargs = placement(arguments(sample))
        return moved, args, {**kwargs, "out": placement(out)}

    return prepare


def check_out(op, dtype: torch.dtype, most: int | None) -> int:
    samples = []
    for sample in some_samples(op, dtype, SAMPLES // 2):
        expected = outcome(lambda s=sample: call(op.op, place(arguments(s), CPU)))
        if expected.error is None and tensors_of(expected.result) and "out" not in sample.kwargs:
            samples.append(sample)
    if not samples:
        raise NothingToCompare("no sample returns tensors without an error on the CPU")
    values = op.name not in UNINITIALISED
    kinds = (exact, other_strides, empty, wider)
    return judge([(Trial(seedless(op), prepare=with_out(op, kind), values=values, computes=dtype), samples) for kind in kinds])


@source("compiled_out")
def out_cases():
    return full_tier_only(
        operator_cases(
            "compiled_out", check_out, dtypes=lambda op: {one_dtype(op, forward_dtypes(op))} - {None}, where=lambda op: op.supports_out
        )
    )


def check_errors(op, dtype: torch.dtype, most: int | None) -> int:
    seed_all()
    return judge([(Trial(op.op), [each.sample_input for each in op.error_inputs("cpu")])])


@source("compiled_errors")
def error_cases():
    return full_tier_only(
        operator_cases(
            "compiled_errors", check_errors, dtypes=lambda op: {torch.float32}, where=lambda op: op.error_inputs_func is not None
        )
    )
