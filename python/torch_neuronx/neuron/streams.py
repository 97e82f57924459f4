"""Streams: the order in which a device works, and which of its streams is current."""

from types import TracebackType
from typing import Any

import torch

from torch_neuronx._library import _C
from torch_neuronx.neuron._device_index import DeviceLike, device_index
from torch_neuronx.neuron.events import Event


class Stream(torch.Stream):
    """A queue of work on one device.

    Without multi-stream mode, the device's default, every stream *is* the default stream of its device.

    Args:
        device: the core, by default the current one. ValueError if it does not exist.
        priority: lower numbers come first.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> "Stream":
        """Create a stream, or with `stream_id=`, `device_index=` and `device_type=` a handle of an existing one."""
        if kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, device=torch.device("neuron", device_index(device)), priority=priority)

    @property
    def priority(self) -> int:
        """The priority that the stream was created with."""
        return _C.stream_priority(self.device_index, self.stream_id)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record an event, by default a new :class:`torch.neuron.Event`, after the work submitted so far, and return it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<torch.neuron.Stream device={self.device} stream_id={self.stream_id}>"


def _handle(index: int, stream_id: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=index, device_type=_C.DEVICE_TYPE)


def current_stream(device: DeviceLike = None) -> Stream:
    """Return the calling thread's current stream of a device, by default of the current one."""
    index = device_index(device)
    return _handle(index, _C.current_stream(index))


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the default stream of a device, by default of the current one."""
    index = device_index(device)
    return _handle(index, _C.default_stream(index))


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream current on its device for the calling thread, and that device the current one. `None` changes nothing."""
    if stream is not None:
        _C.set_stream(stream.device_index, stream.stream_id)


class StreamContext:
    """Context manager that makes a stream and its device current, and restores both. `None` changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[tuple[int, Stream]] = []  # a stack, because one object may be entered again inside itself

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous.append((_C.current_device(), current_stream(self.stream.device)))
            set_stream(self.stream)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if self._previous:
            index, stream = self._previous.pop()
            set_stream(stream)
            _C.set_device(index)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager that makes a stream current; see :class:`StreamContext`."""
    return StreamContext(stream)


def wait_stream(stream: torch.Stream) -> None:
    """Make later work of the current stream wait for the work submitted to another stream so far."""
    current_stream().wait_stream(stream)


def wait_event(event: torch.Event) -> None:
    """Make later work of the current stream wait for an event."""
    current_stream().wait_event(event)


def record_event(event: torch.Event | None = None) -> torch.Event:
    """Record an event, by default a new one, on the current stream and return it."""
    return current_stream().record_event(event)


def query() -> bool:
    """Say whether all work submitted to the current stream has finished."""
    return current_stream().query()
