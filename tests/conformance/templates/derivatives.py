"""Derivatives: backward, double backward and forward mode give the CPU's numbers, or its error."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad

from ..case import NothingToCompare, source
from ..compare import compare_calls
from ..operators import backward_dtypes, operator_cases, some_samples
from ..samples import CPU, DEVICE, Placement, arguments, call, tensors_of


def differentiable(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors with a gradient to give."""
    return [t for t in tensors if t.requires_grad]


class Probe:
    """Runs one sample on one device and differentiates it along directions that are the same on every device."""

    def __init__(self, op: Any, sample: Any, device: torch.device) -> None:
        self.op, self.sample, self.placement = op, sample, Placement(device)
        self.given = self.placement(arguments(sample))
        self.inputs = differentiable(tensors_of(self.given))
        self.directions = torch.Generator().manual_seed(1)

    def direction(self, like: torch.Tensor) -> torch.Tensor:
        """A fixed pseudo-random tensor of the same shape, strides' order and dtype."""
        drawn = torch.randn(like.shape, generator=self.directions, dtype=torch.complex128 if like.is_complex() else torch.float64)
        return drawn.to(like.dtype).to(self.placement.device)

    def outputs(self) -> list[torch.Tensor]:
        """The results that can be differentiated."""
        result = self.sample.output_process_fn_grad(call(self.op.op, self.given))
        return differentiable(tensors_of(result))

    def gradients(self, outputs: list[torch.Tensor], create_graph: bool = False) -> list[Any]:
        """Gradients of the inputs along fixed directions of the outputs."""
        directions = [self.direction(t) for t in outputs]
        return list(torch.autograd.grad(outputs, self.inputs, directions, create_graph=create_graph, allow_unused=True))

    def backward(self) -> list[Any]:
        """First derivatives."""
        outputs = self.outputs()
        return self.gradients(outputs) if outputs and self.inputs else []

    def double_backward(self) -> list[Any]:
        """Derivatives of the first derivatives."""
        outputs = self.outputs()
        if not outputs or not self.inputs:
            return []
        again = [t for t in self.gradients(outputs, create_graph=True) if t is not None and t.requires_grad]
        return [again, self.gradients(again) if again else []]

    def forward_mode(self) -> list[Any]:
        """Results and tangents for fixed tangents of the inputs."""
        with forward_ad.dual_level():
            for given in self.inputs:
                dual = forward_ad.make_dual(given.detach(), self.direction(given))
                self._replace(given, dual)
            result = tensors_of(self.sample.output_process_fn_grad(call(self.op.op, self.given)))
            return [list(forward_ad.unpack_dual(t)) for t in result]

    def _replace(self, old: torch.Tensor, new: torch.Tensor) -> None:
        self.given = torch.utils._pytree.tree_map(lambda leaf: new if leaf is old else leaf, self.given)


def checker(method: str):
    """A check that compares one method of `Probe` on both devices."""

    def check(op, dtype: torch.dtype, most: int | None) -> int:
        compared = 0
        for sample in some_samples(op, dtype, most, requires_grad=True):
            cpu, device = Probe(op, sample, CPU), Probe(op, sample, DEVICE)
            if not cpu.inputs:
                continue
            # Nodes made during a backward pass are numbered per thread, the device's pass runs on a thread of its own, so sums of gradients
            # are formed in another order there, as on CUDA; the first summand decides the strides.
            compare_calls(getattr(device, method), getattr(cpu, method), strides=method != "double_backward")
            compared += 1
        if not compared:
            raise NothingToCompare("no sample has an input that requires a gradient")
        return compared

    return check


@source("backward")
def backward_cases():
    """Gradients are the CPU's."""
    return operator_cases("backward", checker("backward"), dtypes=backward_dtypes)


@source("double_backward")
def double_backward_cases():
    """Gradients of gradients are the CPU's."""
    return operator_cases("double_backward", checker("double_backward"), dtypes=backward_dtypes, where=lambda op: op.supports_gradgrad)


@source("forward_mode")
def forward_mode_cases():
    """Forward-mode tangents are the CPU's."""
    return operator_cases("forward_mode", checker("forward_mode"), dtypes=backward_dtypes, where=lambda op: op.supports_forward_ad)
