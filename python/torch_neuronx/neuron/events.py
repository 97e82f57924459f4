"""Events: points in the order of a stream, with the real time at which they were reached."""

import torch

from torch_neuronx._library import _C


class Event(torch.Event):
    """A point in the order of a stream.

    Args:
        enable_timing: whether the event remembers when it was reached.
        blocking: whether `synchronize()` sleeps instead of spinning; waiting is free here, so it makes no difference.
        interprocess: not supported; True raises RuntimeError.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        *,
        device: torch.device | str | int | None = None,
    ) -> "Event":
        """Create an event. It belongs to the device of the stream that it is recorded on."""
        if interprocess:
            raise RuntimeError("events of the device `neuron` cannot be shared between processes")
        where = torch.device("neuron") if device is None else torch.device(device)
        return super().__new__(cls, device=where, enable_timing=enable_timing, blocking=blocking)

    def elapsed_time(self, other: torch.Event) -> float:
        """Return the milliseconds of real time from this event to another one, recorded later or earlier.

        Raises ValueError if either was not recorded or was created without `enable_timing`, TypeError if `other` is not an event.
        """
        return _C.elapsed_time(self, other)
