"""Views: a result shares storage, base and versions with an input where the CPU's does, and writing to it changes the input alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..case import source
from ..compare import assert_same, assert_same_error, outcome
from ..operators import UNINITIALISED, operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, stays_on_host, tensors_of


def sharing(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[Any]:
    """For each result: which inputs it is, shares memory with, is a view of, and whether it counts versions with them."""
    return [
        [
            (
                result is given,
                result.numel() > 0 and result.untyped_storage().data_ptr() == given.untyped_storage().data_ptr(),
                result._is_view() and result._base is (given._base if given._is_view() else given),
                result._version == given._version,
            )
            for given in inputs
        ]
        for result in results
    ]


def write_through(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[Any]:
    """Zero each result that shares memory with an input; afterwards all versions and inputs."""
    storages = {t.untyped_storage().data_ptr() for t in inputs}
    for result in results:
        if result.numel() and result.untyped_storage().data_ptr() in storages:
            result.zero_()
    return [[t._version for t in [*results, *inputs]], inputs]


def strided(tensors: list[torch.Tensor]) -> bool:
    return all(t.layout is torch.strided for t in tensors)


def check(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        found = []
        for device in (CPU, DEVICE):
            given = place(arguments(sample), device)
            called = outcome(partial(call, op.op, given))
            results, inputs = tensors_of(called.result), [t for t in tensors_of(given) if not stays_on_host(t)]
            if called.error is not None or not strided(results + inputs):
                found.append((called, None, called))
                continue
            shared = sharing(results, inputs)
            found.append((called, shared, outcome(partial(write_through, results, inputs))))
        (cpu_call, cpu_sharing, cpu_write), (device_call, device_sharing, device_write) = found
        assert_same_error(device_call, cpu_call, message=False)
        assert device_sharing == cpu_sharing, f"shared with inputs: {device_sharing} instead of {cpu_sharing}"
        assert_same_error(device_write, cpu_write, message=False)
        if cpu_sharing is not None and cpu_write.error is None and op.name not in UNINITIALISED:
            assert_same(device_write.result, cpu_write.result)
        compared += 1
    return compared


@source("aliasing")
def cases():
    return operator_cases("aliasing", check)
