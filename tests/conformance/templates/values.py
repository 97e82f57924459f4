"""Every sample gives the CPU's result: structure, dtype, shape, strides, values; inputs stay as they were."""

from __future__ import annotations

from functools import partial

import torch

from ..case import source
from ..compare import assert_same, compare_calls
from ..operators import UNINITIALISED, VALUE_DTYPES, operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, tensors_of, wide


def check(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        on_cpu, on_device = place(arguments(sample), CPU), place(arguments(sample), DEVICE)
        exact = partial(call, op.op, wide(place(arguments(sample), CPU)))
        values = op.name not in UNINITIALISED
        happened = compare_calls(partial(call, op.op, on_device), partial(call, op.op, on_cpu), exact=exact, values=values)
        if not happened.random and values:
            for one, other in zip(tensors_of(on_device), tensors_of(on_cpu), strict=True):
                if one is not other:  # else it stays on the host
                    assert_same(one, other)
        compared += 1
    return compared


@source("values")
def cases():
    return operator_cases("values", check, quick_dtypes=VALUE_DTYPES, full_samples=None)
