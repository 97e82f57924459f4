"""What Dynamo asks a device for: streams, events, synchronisation, properties. Everything is `torch.neuron`'s."""

from typing import Any

from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

from torch_neuronx import neuron
from torch_neuronx.neuron.devices import _exchange_device, _maybe_exchange_device


class NeuronInterface(DeviceInterface):
    """Dynamo's view of the device `neuron`."""

    device = neuron.device
    Event = neuron.Event
    Stream = neuron.Stream

    class Worker:
        """The same questions from a worker process, which does not touch the device."""

        set_device = staticmethod(neuron.set_device)
        current_device = staticmethod(neuron.current_device)
        get_device_properties = staticmethod(neuron.get_device_properties)

    current_device = staticmethod(neuron.current_device)
    set_device = staticmethod(neuron.set_device)
    device_count = staticmethod(neuron.device_count)
    is_available = staticmethod(neuron.is_available)
    stream = staticmethod(neuron.stream)
    current_stream = staticmethod(neuron.current_stream)
    set_stream = staticmethod(neuron.set_stream)
    synchronize = staticmethod(neuron.synchronize)
    exchange_device = staticmethod(_exchange_device)
    maybe_exchange_device = staticmethod(_maybe_exchange_device)
    memory_allocated = staticmethod(neuron.memory_allocated)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        """Give the number of the core's current stream."""
        return int(neuron.current_stream(device_idx).stream_id)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        neuron.set_stream(neuron.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @staticmethod
    def get_compute_capability(device: Any = None) -> Any:
        """(major, minor) of the core's generation."""
        return neuron.get_device_capability(device)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        """Every core computes in bfloat16."""
        return neuron.is_bf16_supported()


def register() -> None:
    """Tell Dynamo about the device and each of its cores."""
    register_interface_for_device("neuron", NeuronInterface)
    for index in range(neuron.device_count()):
        register_interface_for_device(f"neuron:{index}", NeuronInterface)
