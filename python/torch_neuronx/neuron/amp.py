"""Automatic mixed precision under the names that users of `torch.cuda.amp` know. `torch.autocast("neuron", ...)` is the same thing."""

import functools
from typing import Any

import torch
from torch.amp import GradScaler as _GradScaler

from torch_neuronx.neuron.properties import get_amp_supported_dtype

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype"]


class autocast(torch.autocast):
    """`torch.autocast("neuron", ...)`."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool | None = None) -> None:
        super().__init__("neuron", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """`torch.amp.GradScaler("neuron", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("neuron", *args, **kwargs)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="neuron")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="neuron")
