"""Samples in other layouts: non-contiguous, transposed, with an offset, broadcast, empty, 0-d, conjugated, the same tensor twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ..case import source
from ..compare import compare_calls
from ..operators import UNINITIALISED, operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, stays_on_host, wide

Change = Callable[[torch.Tensor], torch.Tensor]


def non_contiguous(t: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger tensor in the last dimension."""
    if t.dim() == 0:
        return t
    wide = torch.zeros(*t.shape[:-1], 2 * t.shape[-1] + 1, dtype=t.dtype)
    return wide[..., 1::2].copy_(t)


def transposed(t: torch.Tensor) -> torch.Tensor:
    """Fortran order."""
    reverse = tuple(reversed(range(t.dim())))
    return t.permute(reverse).contiguous().permute(reverse)


def with_offset(t: torch.Tensor) -> torch.Tensor:
    """Contiguous, beginning at an odd place of its storage."""
    return torch.zeros(t.numel() + 3, dtype=t.dtype)[3:].copy_(t.reshape(-1)).view(t.shape)


def broadcast(t: torch.Tensor) -> torch.Tensor:
    """The first row repeated with stride 0."""
    return t[:1].expand(t.shape) if t.dim() and t.shape[0] else t


def empty(t: torch.Tensor) -> torch.Tensor:
    """No elements: size 0 in the first dimension."""
    return t[:0] if t.dim() else t


def scalar(t: torch.Tensor) -> torch.Tensor:
    """0-d."""
    return t.reshape(-1)[0] if t.numel() else t


def conjugated(t: torch.Tensor) -> torch.Tensor:
    """The conjugate bit set, same values."""
    return t.conj().resolve_conj().conj() if t.is_complex() else t


def negated(t: torch.Tensor) -> torch.Tensor:
    """The negative bit set, same values."""
    return torch._neg_view(-t) if t.is_floating_point() or t.is_complex() else t


CHANGES: tuple[Change, ...] = (non_contiguous, transposed, with_offset, broadcast, empty, scalar, conjugated, negated)


def changed(given: Any, change: Change) -> Any:
    """The arguments with every strided tensor changed."""

    def leaf(t: Any) -> Any:
        return change(t.detach()) if isinstance(t, torch.Tensor) and t.layout is torch.strided and not stays_on_host(t) else t

    return tree_map(leaf, given)


def twice(given: Any) -> Any:
    """The first tensor in the place of every other tensor of its shape and dtype."""
    first = given[0]

    def leaf(t: Any) -> Any:
        same = isinstance(t, torch.Tensor) and isinstance(first, torch.Tensor) and t.shape == first.shape and t.dtype == first.dtype
        return first if same else t

    return tree_map(leaf, given)


def layouts_of(given: Any) -> Iterator[tuple[str, Any]]:
    """Name and arguments for each layout that torch can make of the tensors (it cannot negate every dtype)."""
    for change in CHANGES:
        try:
            yield change.__name__, changed(given, change)
        except NotImplementedError:
            continue
    yield "twice", twice(given)


def check(op, dtype: torch.dtype, most: int | None) -> int:
    compared = 0
    for sample in some_samples(op, dtype, most):
        given = arguments(sample)
        for name, layout in layouts_of(given):
            on_cpu, on_device = place(layout, CPU), place(layout, DEVICE)
            try:
                values = op.name not in UNINITIALISED
                exact = partial(call, op.op, wide(place(layout, CPU)))
                compare_calls(partial(call, op.op, on_device), partial(call, op.op, on_cpu), exact=exact, values=values)
            except AssertionError as difference:
                raise AssertionError(f"layout `{name}`: {difference}") from difference
            compared += 1
    return compared


@source("layouts")
def cases():
    return operator_cases("layouts", check)
