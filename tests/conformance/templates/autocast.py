"""Under autocast, results of float32 samples are float32 or bfloat16, near the float32 result."""

from __future__ import annotations

from functools import partial

import torch

from ..case import NothingToCompare, source
from ..compare import assert_same_error, draws_random_numbers, outcome
from ..operators import UNINITIALISED, operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, tensors_of

# bfloat16 has 8 bits of mantissa, and sums of products of such numbers may cancel: the error is relative to the largest result.
RELATIVE = 0.1


def autocasted(op, given, device: torch.device):
    """The call under bfloat16 autocast."""
    with torch.autocast(device.type, dtype=torch.bfloat16):
        return call(op.op, given)


def check(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        given = arguments(sample)
        exact = outcome(partial(call, op.op, place(given, CPU)))
        if exact.error is not None:
            continue
        on_device = outcome(partial(autocasted, op, place(given, DEVICE), DEVICE))
        on_cpu = outcome(partial(autocasted, op, place(given, CPU), CPU))
        if on_device.error is not None:
            assert_same_error(on_device, on_cpu, message=False)
            continue
        values = op.name not in UNINITIALISED and not draws_random_numbers(partial(call, op.op, place(given, CPU)))
        for one, other in zip(tensors_of(on_device.result), tensors_of(exact.result), strict=True):
            if other.dtype is torch.float32:
                assert one.dtype in (torch.float32, torch.bfloat16), f"autocast gives {one.dtype}"
            else:
                assert one.dtype is other.dtype, f"autocast gives {one.dtype} for {other.dtype}"
            assert one.shape == other.shape
            if values and other.dtype is torch.float32 and on_cpu.error is None:
                largest = other[other.isfinite()].abs().max().item() if other.isfinite().any() else 0.0
                torch.testing.assert_close(one.cpu().float(), other, equal_nan=True, rtol=RELATIVE, atol=RELATIVE * max(1.0, largest))
        compared += 1
    if not compared:
        raise NothingToCompare("no sample runs on the CPU, or autocast bans the operator")
    return compared


@source("autocast")
def cases():
    return operator_cases("autocast", check, dtypes=lambda op: {torch.float32} & set(op.supported_dtypes("cpu")))
