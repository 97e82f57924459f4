"""Fake tensors (torch.compile traces with them) predict the real result's metadata as well as they do for the CPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from ..case import NothingToCompare, source
from ..compare import assert_same_error, neutral, outcome, same_strides
from ..operators import operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, tensors_of


def faked(op, given: Any) -> Any:
    """The result of the call on fake copies of its arguments."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return call(op.op, tree_map(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, given))


def differences(fake: Any, real: Any) -> list[str]:
    """What the prediction gets wrong."""
    found = []
    for one, other in zip(tensors_of(fake), tensors_of(real), strict=True):
        for name in ("device", "dtype", "shape", "layout"):
            if getattr(one, name) != getattr(other, name):
                found.append(f"{name} {getattr(one, name)} instead of {getattr(other, name)}")
        if one.shape == other.shape and other.layout is torch.strided and not same_strides(one, other):
            found.append(f"strides {one.stride()} instead of {other.stride()}")
    return found


def check(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        found = []
        for device in (CPU, DEVICE):
            real = outcome(partial(call, op.op, place(arguments(sample), device)))
            fake = outcome(partial(faked, op, place(arguments(sample), device)))
            found.append((real, fake))
        (cpu_real, cpu_fake), (device_real, device_fake) = found
        if cpu_real.error is not None:
            continue
        assert_same_error(device_real, cpu_real, message=False)
        assert_same_error(device_fake, cpu_fake, message=False)
        if cpu_fake.error is None:
            wrong = [neutral(text) for text in differences(device_fake.result, device_real.result)]
            mirrored = [neutral(text) for text in differences(cpu_fake.result, cpu_real.result)]
            assert not set(wrong) - set(mirrored), f"predicted {wrong}"
        compared += 1
    if not compared:
        raise NothingToCompare("no sample runs on the CPU")
    return compared


@source("fake")
def cases():
    return operator_cases("fake", check)
