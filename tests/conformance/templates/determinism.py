"""Two runs with one seed give the same bits."""

from __future__ import annotations

from functools import partial

import torch

from ..case import NothingToCompare, source
from ..compare import outcome
from ..operators import UNINITIALISED, operator_cases, some_samples
from ..samples import DEVICE, arguments, call, place, tensors_of


def check(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        first, second = (outcome(partial(call, op.op, place(arguments(sample), DEVICE)), seed=7) for _ in range(2))
        assert type(first.error) is type(second.error)
        if first.error is not None:
            continue
        for one, other in zip(tensors_of(first.result), tensors_of(second.result), strict=True):
            if one.layout is torch.strided:
                assert torch.equal(bits(one), bits(other)), "two runs with one seed differ"
        compared += 1
    if not compared:
        raise NothingToCompare("no sample runs on the device")
    return compared


def bits(t: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, so that NaN equals itself."""
    flat = t.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    return torch.empty(flat.shape, dtype=flat.dtype).copy_(flat).view(torch.uint8)


@source("determinism")
def cases():
    return operator_cases("determinism", check, where=lambda op: op.name not in UNINITIALISED)
