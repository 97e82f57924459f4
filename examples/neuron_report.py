"""What the examples say about the device: that it is there, what was compiled, what ran where."""

from __future__ import annotations

import torch


def require_neuron() -> str:
    """Return one line that describes the device, or end the program with the reason why there is none.

    Libraries choose the CPU silently when `neuron` is missing; a demo of the device must not.

    Raises:
        SystemExit: PyTorch has no usable device `neuron`.
    """
    module = getattr(torch, "neuron", None)
    if module is None:
        raise SystemExit("PyTorch did not load the device 'neuron': is torch-neuronx installed in this environment? (`make build`)")
    if not module.is_available():
        raise SystemExit("torch.neuron.is_available() is False: the warning printed at `import torch` names the reason")
    memory = module.get_device_properties(0).total_memory
    return f"{module.device_count()} cores with {memory / 2**30:.0f} GiB each"


def compiled_graphs() -> int:
    """Return how many graphs the backend `neuron` has compiled in this process."""
    from torch._dynamo.utils import counters

    return int(counters["neuron"]["compiled_graphs"])


def describe(tensor: torch.Tensor) -> str:
    """Return dtype, shape and place of a tensor, such as `int64[1, 6] on cpu`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} on {tensor.device}"


def line(name: str, text: str) -> None:
    """Print one row of the report."""
    print(f"{name:<10}{text}", flush=True)
