"""Turns what users call a device into an index."""

from typing import cast

import torch

from torch_neuronx._library import _C

# What every `device` argument of torch.neuron accepts; None means the current device.
DeviceLike = int | str | torch.device | None


def _parse(device: object) -> torch.device | int:
    if isinstance(device, int | torch.device):
        return device
    if isinstance(device, str):
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise ValueError(f"not a device: {device!r}") from error
    raise ValueError(f"expected a device index, a device string or a torch.device, got {device!r} of type {type(device).__name__}")


def device_index(device: object) -> int:
    """Return the index of an existing core. `None` and a device without an index mean the current device.

    Raises ValueError for a core that does not exist, another kind of device, or another type.
    """
    if device is None:
        return _C.current_device()
    parsed = _parse(device)
    if isinstance(parsed, torch.device):
        if parsed.type != "neuron":
            raise ValueError(f"expected a `neuron` device, got {parsed}")
        index = cast("int | None", parsed.index)  # torch's annotation leaves None out
        if index is None:
            return _C.current_device()
        parsed = index
    _C.check_device(parsed)
    return parsed
