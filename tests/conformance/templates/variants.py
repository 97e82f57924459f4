"""Method, operator and in-place forms: the CPU's result; in place, the same tensor comes back, its version counts up, its base changes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..case import source
from ..compare import assert_same, compare_calls
from ..operators import UNINITIALISED, operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, wide


def forms(op) -> list[Any]:
    """The forms of an operator that write nothing."""
    return [form for form in (op.method_variant, op.operator_variant) if form is not None]


def in_place_forms(op) -> list[Any]:
    """The forms that write their first argument."""
    return [form for form in (op.inplace_variant, op.inplace_operator_variant) if form is not None]


def check_forms(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        for form in forms(op):
            on_cpu, on_device = place(arguments(sample), CPU), place(arguments(sample), DEVICE)
            exact = partial(call, form, wide(place(arguments(sample), CPU)))
            compare_calls(partial(call, form, on_device), partial(call, form, on_cpu), exact=exact, values=op.name not in UNINITIALISED)
            compared += 1
    return compared


def in_place_facts(form, given) -> tuple[Any, ...]:
    """The result of an in-place form and what must hold beside it."""
    version = given[0]._version
    result = call(form, given)
    return result, result is given[0], given[0]._version - version


def view_of_larger(given):
    """The arguments, the first tensor being every second row of a larger one with an offset, and that larger one."""
    base = torch.zeros(2 * given[0].shape[0] + 1, *given[0].shape[1:], dtype=given[0].dtype, device=given[0].device)
    view = base[1::2]
    view.copy_(given[0])
    return base, (view, *given[1:])


def check_in_place(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        for form in in_place_forms(op):
            on_cpu, on_device = place(arguments(sample), CPU), place(arguments(sample), DEVICE)
            compare_calls(partial(in_place_facts, form, on_device), partial(in_place_facts, form, on_cpu))
            compared += 1
            if not isinstance(sample.input, torch.Tensor) or sample.input.dim() == 0:
                continue
            (cpu_base, on_cpu), (device_base, on_device) = (view_of_larger(place(arguments(sample), d)) for d in (CPU, DEVICE))
            happened = compare_calls(partial(in_place_facts, form, on_device), partial(in_place_facts, form, on_cpu))
            if happened.error is None:
                assert_same(device_base, cpu_base, values=not happened.random)
            compared += 1
    return compared


@source("variants")
def form_cases():
    """Method and operator forms give the CPU's result."""
    return operator_cases("variants", check_forms, where=lambda op: bool(forms(op)))


@source("inplace")
def in_place_cases():
    """In-place forms, also on views: the same tensor comes back, its version counts up, its base changes."""
    return operator_cases("inplace", check_in_place, quick_dtypes=(torch.complex64,), where=lambda op: bool(in_place_forms(op)))
