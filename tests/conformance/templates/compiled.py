"""`torch.compile(backend="neuron")` gives what eager gives: values, layouts, sharing, writes, gradients, random numbers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

from ..case import NothingToCompare, source
from ..operators import UNINITIALISED, backward_dtypes, forward_dtypes, operator_cases, some_samples
from ..samples import tensors_of
from .compiled_trial import Trial, judge

DTYPES = {torch.float32, torch.bfloat16, torch.int64}
# A backward costs three times a forward: the quick tier has those of the families that models are made of, with one sample.
QUICK_BACKWARD = {"nn.functional"}
QUICK_SAMPLES = 2


def seedless(op) -> Callable[..., Any]:
    """The operator itself, where the database wraps one that draws random numbers in a function that sets the state of all generators.

    Dynamo cannot trace that function, and the numbers are compared here: a compiled graph draws those that eager draws.
    """
    names = getattr(getattr(op.op, "__code__", None), "co_names", ())
    if names[:2] != ("wrapper_set_seed", "torch"):
        return op.op
    return functools.reduce(getattr, names[2:], torch)


def check(op, dtype: torch.dtype, most: int | None) -> int:
    samples = some_samples(op, dtype, None if most is None else min(most, QUICK_SAMPLES))
    return judge([(Trial(seedless(op), values=op.name not in UNINITIALISED), samples)])


@source("compiled")
def cases():
    return operator_cases("compiled", check, dtypes=lambda op: forward_dtypes(op) & DTYPES, full_samples=None)


def gradients(sample: Any, given: Any, result: Any) -> list[torch.Tensor | None]:
    """Gradients of the inputs along fixed directions of the results, whose numbers every dtype has."""
    inputs = [t for t in tensors_of(given) if t.requires_grad]
    outputs = [t for t in tensors_of(sample.output_process_fn_grad(result)) if t.requires_grad]
    if not inputs or not outputs:
        return []
    numbers = torch.Generator().manual_seed(1)
    parts = [[torch.randn(t.shape, generator=numbers).bfloat16().double() for _ in range(1 + t.is_complex())] for t in outputs]
    directions = [
        (torch.complex(*part) if t.is_complex() else part[0]).to(t.dtype).to(t.device) for t, part in zip(outputs, parts, strict=True)
    ]
    return list(torch.autograd.grad(outputs, inputs, directions, allow_unused=True))


def check_backward(op, dtype: torch.dtype, most: int | None) -> int:
    samples = some_samples(op, dtype, most, requires_grad=True)
    samples = [s for s in samples if any(t.requires_grad for t in tensors_of((s.input, s.args, s.kwargs)))][: None if most is None else 1]
    if not samples:
        raise NothingToCompare("no sample has an input that requires a gradient")
    return judge([(Trial(seedless(op), after=gradients, programs=2), samples)])


@source("compiled_backward")
def backward_cases():
    chosen = operator_cases("compiled_backward", check_backward, dtypes=lambda op: backward_dtypes(op) & DTYPES, full_samples=None)
    return (dataclasses.replace(case, quick=case.quick and case.family in QUICK_BACKWARD) for case in chosen)
