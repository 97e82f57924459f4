"""The module that PyTorch users see as `torch.neuron`: cores, streams, memory, random numbers and mixed precision."""

import importlib
from typing import Any

from torch_neuronx import _library
from torch_neuronx.metrics import get_dynamo_metrics, reset_dynamo_metrics
from torch_neuronx.neuron import amp, memory, random
from torch_neuronx.neuron.amp import get_amp_supported_dtype
from torch_neuronx.neuron.devices import (
    _exchange_device,  # noqa: F401 (names with an underscore: called by PyTorch)
    _is_in_bad_fork,  # noqa: F401
    _lazy_init,  # noqa: F401
    _maybe_exchange_device,  # noqa: F401
    _sleep,  # noqa: F401
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torch_neuronx.neuron.events import Event
from torch_neuronx.neuron.memory import (
    empty_cache,
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
)
from torch_neuronx.neuron.properties import get_device_capability, get_device_name, get_device_properties, is_bf16_supported
from torch_neuronx.neuron.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_neuronx.neuron.streams import (
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    query,
    record_event,
    set_stream,
    stream,
    wait_event,
    wait_stream,
)


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # torch.utils.checkpoint reads it to decide whether to save the states of the generators
        return is_initialized()
    if name == "default_generators":
        return random.default_generators
    if name == "Scheduling" and not _library.problem:
        # Inductor asks for it when it compiles for the first time, for any device: the module registers this one.
        return importlib.import_module("torch_neuronx.neuron_dynamo_backend.inductor").Scheduling
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_dynamo_metrics",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "query",
    "random",
    "record_event",
    "reset_accumulated_memory_stats",
    "reset_dynamo_metrics",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "wait_event",
    "wait_stream",
]
