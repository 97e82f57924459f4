"""The cores of the process: how many there are, which one is current, and the state of the runtime."""

import warnings
from types import TracebackType
from typing import Any

import torch

from torch_neuronx._library import _C
from torch_neuronx.neuron._device_index import DeviceLike, device_index

_topology_reported = False


def is_available() -> bool:
    """Say whether there is at least one core. Cheap, never raises, does not start the runtime, and works in forked processes."""
    try:
        return device_count() > 0
    except Exception:
        return False


def device_count() -> int:
    """Return the number of logical NeuronCores visible to the process. Does not start the runtime.

    A bad environment (for example a malformed `NEURON_RT_VISIBLE_CORES`) means 0, and one warning that names the variable.
    The environment is read on the first call.
    """
    count = _C.device_count()
    if count == 0:
        _report_topology_error()
    return count


def _report_topology_error() -> None:
    global _topology_reported
    error = _C.topology_error()
    if error and not _topology_reported:
        _topology_reported = True
        warnings.warn(f"The device `neuron` is not available: {error}", RuntimeWarning, stacklevel=3)


def current_device() -> int:
    """Return the index of the calling thread's current device.

    A thread that never chose one sees the device that the main thread selected last. Does not start the runtime.
    """
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Select the calling thread's current device. A device without an index leaves the selection as it is. Does not start the runtime.

    Raises ValueError, naming the number of cores, for a core that does not exist.
    """
    _C.set_device(device_index(device))


def is_initialized() -> bool:
    """Say whether the runtime has started in this process."""
    return _C.is_initialized()


def init() -> None:
    """Start the runtime, which otherwise happens on first use of the device. Later calls do nothing.

    Raises RuntimeError in a process forked after its parent used the device, and when the environment describes no device.
    """
    _C.initialize()


def _lazy_init() -> None:
    """Start the runtime. PyTorch calls this before it creates a tensor on the device."""
    _C.initialize()


def _is_in_bad_fork() -> bool:
    """Say whether this process was forked after its parent had started the runtime, so that it cannot use the device."""
    return _C.is_in_bad_fork()


def synchronize(device: DeviceLike = None) -> None:
    """Wait until all work submitted to all streams of the device has finished. Does not start the runtime."""
    _C.synchronize(device_index(device))


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Return False: a core cannot address the memory of another one. Raises ValueError for a core that does not exist."""
    device_index(device)
    device_index(peer_device)
    return False


def _exchange_device(device: int) -> int:
    """Select a device and return the one that was current; a negative index changes nothing and returns -1."""
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    """Do the same as :func:`_exchange_device`: switching costs nothing here, so there is nothing to avoid."""
    return _C.exchange_device(device)


def _sleep(cycles: int) -> None:
    """Do nothing. Exists because tests of streams call it."""


class device:
    """Context manager that selects a device and restores the previous one. `None` or a negative index changes nothing."""

    def __init__(self, device: DeviceLike) -> None:
        unchanged = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if unchanged else device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that selects the device of a tensor or storage; changes nothing if that is not on `neuron`."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "neuron" else None)
