"""Memory of the cores: figures of the caching allocator, in bytes unless said otherwise.

Invariant: reserved >= allocated >= active. Reading a figure does not start the runtime; a core that was not used yet has zeros.
`device` is an index, a string, a `torch.device` or None for the current device; ValueError if there is no such core.
"""

from typing import Any

import torch

from torch_neuronx._library import _C
from torch_neuronx.neuron._device_index import DeviceLike, device_index

_DOCUMENTED_GROUPS = ("allocated_bytes", "reserved_bytes", "active_bytes")
_SUMMARY_GROUPS = ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes", "inactive_split_bytes", "allocation", "segment")


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Return the statistics of a core's allocator.

    - `allocated_bytes`, `reserved_bytes`, `active_bytes`: `{"current", "peak"}`, as on Trainium;
    - `num_alloc_retries`, `num_ooms`, `num_tensor_frees`, `allocation_requests`: counts;
    - `<quantity>.<pool>.<metric>`, as `torch.accelerator.memory_stats` names them: quantity one of `allocated_bytes`, `reserved_bytes`,
      `active_bytes`, `requested_bytes`, `inactive_split_bytes`, `allocation`, `segment`, `active`, `inactive_split`; pool one of `all`,
      `small_pool`, `large_pool`; metric one of `current`, `peak`, `allocated`, `freed`.
    """
    stats: dict[str, Any] = {}
    for name, value in _C.memory_stats(device_index(device)).items():
        if isinstance(value, int):
            stats[name] = value
            continue
        if name in _DOCUMENTED_GROUPS:
            stats[name] = {"current": value["all"]["current"], "peak": value["all"]["peak"]}
        for pool, metrics in value.items():
            stats.update({f"{name}.{pool}.{metric}": figure for metric, figure in metrics.items()})
    return stats


def _figure(device: DeviceLike, group: str, metric: str) -> int:
    figure: int = _C.memory_stats(device_index(device))[group]["all"][metric]
    return figure


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes occupied by tensors."""
    return _figure(device, "allocated_bytes", "current")


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the largest value of :func:`memory_allocated` since the peaks were reset."""
    return _figure(device, "allocated_bytes", "peak")


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes of all segments, in use or cached."""
    return _figure(device, "reserved_bytes", "current")


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the largest value of :func:`memory_reserved` since the peaks were reset."""
    return _figure(device, "reserved_bytes", "peak")


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Make the current values the peaks."""
    _C.reset_peak_memory_stats(device_index(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Do the same as :func:`reset_peak_memory_stats`, as in `torch.cuda`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Set the running totals (`allocated` and `freed` metrics, and the counts) to zero."""
    _C.reset_accumulated_memory_stats(device_index(device))


def empty_cache() -> None:
    """Give the unused segments of all cores back to the host. Memory held by tensors is not touched."""
    for index in range(_C.device_count()):
        _C.empty_cache(index)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return (free, total) bytes of a core's HBM. Cached segments count as used."""
    return _C.memory_info(device_index(device))


def fragmentation(device: DeviceLike = None) -> dict[str, Any]:
    """Say how scattered the free memory inside segments is.

    Returns `free_bytes`, `largest_free_block` (bytes) and `ratio` = 1 - largest_free_block / free_bytes: 0 means one piece, values near 1
    many small ones.
    """
    return _C.memory_fragmentation(device_index(device))


def memory_snapshot(device: DeviceLike = None) -> list[dict[str, Any]]:
    """Return a core's segments with their blocks, ordered by address, in the form of `torch.cuda.memory_snapshot`."""
    return _C.memory_snapshot(device_index(device))


def snapshot() -> dict[str, Any]:
    """Return a picture of all cores' memory. Written with `pickle.dump`, PyTorch's memory visualizer opens it."""
    cores = range(_C.device_count())
    return {"segments": [segment for index in cores for segment in memory_snapshot(index)], "device_traces": [[] for _ in cores]}


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Return a table of a core's statistics. `abbreviated` leaves out the rows of the two pools."""
    index = device_index(device)
    stats = memory_stats(index)
    free, total = mem_get_info(index)
    pools = {"all": "total"} if abbreviated else {"all": "total", "small_pool": "small pool", "large_pool": "large pool"}
    lines = [f"{'':<22}{'current':>16}{'peak':>16}{'allocated':>16}{'freed':>16}"]
    for quantity in _SUMMARY_GROUPS:
        lines.append(quantity.replace("_", " "))
        for pool, label in pools.items():
            row = "".join(f"{stats[f'{quantity}.{pool}.{metric}']:>16,}" for metric in ("current", "peak", "allocated", "freed"))
            lines.append(f"  {label:<20}{row}")
    rule = "=" * len(lines[0])
    heading = f"Neuron Memory Summary, Device {torch.device('neuron', index)}"
    events = f"out of memory {stats['num_ooms']}, retries after emptying the cache {stats['num_alloc_retries']}"
    footer = f"HBM {total:,} bytes, free {free:,}; {events}"
    return "\n".join([rule, heading, rule, *lines, rule, footer, rule])
