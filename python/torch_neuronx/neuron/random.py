"""Random numbers: one Philox generator per core, seeded together with the CPU's by `torch.manual_seed`.

Seeding and reading states works before the runtime has started, and does not start it.
"""

from collections.abc import Iterable
from typing import Any

import torch

from torch_neuronx._library import _C
from torch_neuronx.neuron._device_index import DeviceLike, device_index


def _generators() -> tuple[torch.Generator, ...]:
    return tuple(_C.default_generator(index) for index in range(_C.device_count()))


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return _generators()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _generator(device: DeviceLike) -> torch.Generator:
    return _C.default_generator(device_index(device))


def manual_seed(seed: int) -> None:
    """Seed the default generator of the current device. Negative seeds are accepted as by `torch.manual_seed`."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices. Without a device it does nothing."""
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the default generator of the current device with a random number."""
    _generator(None).seed()


def seed_all() -> None:
    """Seed the default generators of all devices with one random number."""
    generators = _generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """Return the seed of the default generator of the current device."""
    return _generator(None).initial_seed()


def get_rng_state(device: DeviceLike = "neuron") -> torch.Tensor:
    """Return the state of a device's default generator: a uint8 tensor on the CPU, shape [16]: 8 bytes seed, 8 bytes offset."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "neuron") -> None:
    """Set the state of a device's default generator from what :func:`get_rng_state` returned."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' default generators."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all devices' default generators. Raises ValueError if their number is not that of the devices."""
    states = list(new_states)
    generators = _generators()
    if len(states) != len(generators):
        raise ValueError(f"got {len(states)} random number generator states for {len(generators)} neuron devices")
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)
