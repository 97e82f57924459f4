"""Samples of PyTorch's databases, made once on the CPU, and copies of them on any device that keep layout and sharing of storages."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

DEVICE = torch.device("neuron:0")
CPU = torch.device("cpu")


def seed_all(value: int = 0) -> None:
    """Seed every generator that sample functions and operators draw from."""
    torch.manual_seed(value)
    np.random.seed(value)
    random.seed(value)


# These operators take tensors that stay on the host, whatever the device of the others.
HOST_ARGUMENTS = {"tensor_split"}
# Operators whose samples do not always name the device of the result, which is then the CPU.
FACTORIES = {"arange", "linspace", "logspace"}
_latest: dict[tuple[int, torch.dtype, bool, int | None], tuple[Any, ...]] = {}


def operator_samples(op: Any, dtype: torch.dtype, requires_grad: bool = False, most: int | None = None) -> tuple[Any, ...]:
    """The `SampleInput`s of an OpInfo, on the CPU; the first `most` of them. Never run an operator on them: copy them first (`place`).

    Those of the latest operator are kept (an OpInfo lives as long as the process, so its id names it).
    """
    key = (id(op), dtype, requires_grad, most)
    if key not in _latest:
        if any(other[0] != key[0] for other in _latest):
            _latest.clear()
        seed_all()
        samples = tuple(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), most))
        if op.name in HOST_ARGUMENTS:
            for t in tensors_of([(s.args, s.kwargs) for s in samples]):
                t.stays_on_host = True
        if op.name in FACTORIES:
            for sample in samples:
                sample.kwargs.setdefault("device", "cpu")  # which `place` replaces
        _latest[key] = samples
    return _latest[key]


def stays_on_host(t: torch.Tensor) -> bool:
    """Whether a tensor of a sample must not be moved."""
    return getattr(t, "stays_on_host", False)


def spread(samples: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """At most `count` of the samples, evenly spread over them."""
    if len(samples) <= count:
        return samples
    return tuple(samples[index * len(samples) // count] for index in range(count))


class Placement:
    """Copies trees of CPU tensors to a device, layout bits kept; tensors over one storage stay so."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._storages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def tensor(self, given: torch.Tensor) -> torch.Tensor:
        """The copy of one tensor; the same tensor given twice gives the same copy twice."""
        if id(given) not in self._tensors:
            self._tensors[id(given)] = (given, self._copy(given.detach()).requires_grad_(given.requires_grad))
        return self._tensors[id(given)][1]

    def _copy(self, given: torch.Tensor) -> torch.Tensor:
        if given.layout is not torch.strided or given.is_quantized or given.is_nested or type(given) is not torch.Tensor:
            return given.to(self.device, copy=True)
        if given.is_conj():
            return self._copy(given.conj()).conj()
        if given.is_neg():
            return self._copy(torch._neg_view(given))._neg_view()
        storage = given.untyped_storage()
        if given.device.type == "meta":
            return given
        if given.device.type != "cpu":
            return given.to(self.device, copy=True)
        if storage.data_ptr() == 0:
            return torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=self.device)
        if storage.data_ptr() not in self._storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages[storage.data_ptr()] = (whole, whole.to(self.device, copy=True))
        copied = self._storages[storage.data_ptr()][1].untyped_storage()
        result = torch.empty(0, dtype=given.dtype, device=self.device)
        return result.set_(copied, given.storage_offset(), given.shape, given.stride())

    def __call__(self, tree: Any) -> Any:
        """The tree with each tensor copied, and each mention of the CPU as a device replaced."""
        leaves, structure = tree_flatten(tree)
        return tree_unflatten([self._leaf(leaf) for leaf in leaves], structure)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf if stays_on_host(leaf) else self.tensor(leaf)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return type(leaf)(str(self.device))
        return leaf


def place(tree: Any, device: torch.device) -> Any:
    """A copy of a tree of CPU tensors on `device`, layout and sharing kept."""
    return Placement(device)(tree)


NARROW = (torch.float16, torch.bfloat16, torch.float32)


def wide(tree: Any) -> Any:
    """The tree with tensors of float dtypes, and mentions of these dtypes, in float64."""
    leaves, structure = tree_flatten(tree)
    return tree_unflatten([_wide_leaf(leaf) for leaf in leaves], structure)


def _wide_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.dtype):
        return torch.float64 if leaf in NARROW else leaf
    if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW:
        return leaf.detach().double().requires_grad_(leaf.requires_grad)
    return leaf


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree, in order."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def arguments(sample: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """`(input, args, kwargs)` of a SampleInput."""
    return sample.input, sample.args, sample.kwargs


def call(function: Callable[..., Any], given: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> Any:
    """Call with the arguments of a sample."""
    return function(given[0], *given[1], **given[2])
