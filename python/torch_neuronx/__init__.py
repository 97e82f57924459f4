"""SoftNeuron: an independent software implementation of Trainium's PyTorch device `neuron`.

`import torch` is enough: PyTorch calls :func:`_autoload` through the entry point group `torch.backends`, and afterwards
`torch.neuron` exists. An explicit `import torch_neuronx` does the same when `TORCH_DEVICE_BACKEND_AUTOLOAD=0` switches that off.
"""


def _autoload() -> None:
    """Register the device `neuron` with PyTorch, once. Never raises: a broken installation gives one warning and an unavailable device."""
    from torch_neuronx._registration import register

    register()


# If a program imports torch_neuronx first, torch calls `_autoload` while this module is half imported: so it is defined before the import.
import torch  # noqa: F401

_autoload()

from torch_neuronx._version import __version__
from torch_neuronx.metrics import explain, get_dynamo_metrics, reset_dynamo_metrics
from torch_neuronx.neuron import (
    Event,
    Stream,
    StreamContext,
    current_device,
    current_stream,
    default_stream,
    device,
    device_count,
    device_of,
    empty_cache,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    is_initialized as is_neuron_runtime_initialized,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_device,
    set_stream,
    stream,
    synchronize,
)
from torch_neuronx.telemetry import clear_op_tracking, get_executed_ops, get_fallback_ops

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "__version__",
    "clear_op_tracking",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "explain",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_dynamo_metrics",
    "get_executed_ops",
    "get_fallback_ops",
    "is_available",
    "is_neuron_runtime_initialized",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_dynamo_metrics",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_device",
    "set_stream",
    "stream",
    "synchronize",
]
