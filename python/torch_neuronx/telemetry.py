"""Which operators ran on the device. "Fallback list empty" is the usual check that a model suits the device."""

from torch_neuronx._library import _C


def get_executed_ops() -> list[str]:
    """Return the operators (`aten::...`, without overload name, sorted) that ran on the device since :func:`clear_op_tracking`."""
    return _C.executed_ops()


def get_fallback_ops() -> list[str]:
    """Return the subset of :func:`get_executed_ops` that Trainium would run on its host CPU.

    Here they run on the device like all others, without copies; on Trainium each call costs two transfers between device and host.
    """
    return _C.fallback_ops()


def clear_op_tracking() -> None:
    """Forget which operators ran."""
    _C.clear_op_tracking()


def get_counters() -> dict[str, int]:
    """Return counters of the process since its start by name, such as `host_to_device_bytes`."""
    return _C.counters()
