"""Random operators that activation checkpointing runs twice must draw the same numbers both times.

AOTAutograd wraps the first run in `run_and_save_rng_state` and the second in `run_with_rng_state`. PyTorch implements these two for its own
devices only, so graphs for `neuron` call the functions below in their place.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims import rng_prims

from torch_neuronx import neuron


def _device_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    named = kwargs.get("device")
    if named is not None:
        return torch.device(named)
    return next((argument.device for argument in args if isinstance(argument, torch.Tensor)), torch.device("cpu"))


def _get_state(device: torch.device) -> torch.Tensor:
    return neuron.get_rng_state(device) if device.type == "neuron" else torch.get_rng_state()


def _set_state(state: torch.Tensor, device: torch.device) -> None:
    if device.type == "neuron":
        neuron.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def run_and_save_rng_state(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    """Give the state before the operator drew its numbers (uint8, on the CPU), and the operator's result."""
    return _get_state(_device_of(args, kwargs)), operator(*args, **kwargs)


def run_with_rng_state(state: torch.Tensor, operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Give the operator's result with numbers drawn from `state`; the generator goes on as if nothing had been drawn."""
    device = _device_of(args, kwargs)
    current = _get_state(device)
    _set_state(state, device)
    try:
        return operator(*args, **kwargs)
    finally:
        _set_state(current, device)


REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    rng_prims.run_and_save_rng_state: run_and_save_rng_state,
    rng_prims.run_with_rng_state: run_with_rng_state,
}
