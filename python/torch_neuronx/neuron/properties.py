"""What a core is."""

from typing import TYPE_CHECKING

import torch

from torch_neuronx._library import _C
from torch_neuronx.neuron._device_index import DeviceLike, device_index

if TYPE_CHECKING:
    from torch_neuronx._C import NeuronDeviceProperties

# Generation of the NeuronCores of each instance family.
_CORE_GENERATION = {"inf2": 2, "trn1": 2, "trn2": 3, "trn3": 4}


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of a core, which is `neuron:<index>` and not a product name. Raises ValueError for anything that is not a core."""
    return f"neuron:{device_index(device)}"


def get_device_properties(device: DeviceLike = None) -> "NeuronDeviceProperties":
    """Return an object with `name`, `total_memory` (bytes), `core_id` and `chip`. Starts the runtime.

    Raises ValueError for a core that does not exist.
    """
    return _C.device_properties(device_index(device))


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Return (generation of the NeuronCore, 0): (3, 0) on Trainium2. Raises ValueError for a core that does not exist."""
    device_index(device)
    family = _C.instance_type()[:4]
    return _CORE_GENERATION[family], 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return True: every core computes in bfloat16."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that `torch.autocast("neuron", dtype=...)` accepts."""
    return [torch.float16, torch.bfloat16, torch.float32]
