"""Modules as objects: construction on the device, `.to`, state dicts, copies and pickles; what is kept on the CPU is kept here."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import pickle
from collections.abc import Iterator
from typing import Any

import torch

from ..case import NothingToCompare, source
from ..compare import assert_same, assert_same_error, compare_calls, outcome
from ..samples import CPU, DEVICE, place, seed_all
from .modules_samples import ModuleSample, ModuleSubject, forward, module_cases, state


def kinds(module: torch.nn.Module) -> dict[str, Any]:
    """What each parameter and buffer is."""
    return {name: (type(t), t.requires_grad, t.is_leaf, t.dtype) for name, t in state(module).items()}


def assert_same_module(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """The same state on the device as on the CPU."""
    assert kinds(one) == kinds(other)
    assert_same(state(one), state(other))
    assert list(one.state_dict()) == list(other.state_dict())


def with_tied_parameters(module: torch.nn.Module, tie: bool) -> torch.nn.Module:
    """A module that holds the given one, and each of its parameters a second time; some are frozen, some have gradients."""
    holder = torch.nn.Module()
    holder.held = module
    for index, parameter in enumerate(module.parameters()):
        if tie:
            holder.register_parameter(f"tied{index}", parameter)
        if index % 3 == 1:
            parameter.requires_grad_(False)
        elif parameter.requires_grad:
            parameter.grad = torch.full_like(parameter, index + 1)
    return holder


@contextlib.contextmanager
def swapping(on: bool) -> Iterator[None]:
    """Within: conversions swap the contents of parameters instead of assigning to `.data`."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(on)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


CONVERSIONS: tuple[dict[str, Any], ...] = (
    {},
    {"non_blocking": True},
    {"dtype": torch.float64},
    {"dtype": torch.bfloat16},
    {"dtype": torch.float16, "non_blocking": True},
)


def compare_to(sample: ModuleSample, options: dict[str, Any], swap: bool) -> None:
    """`.to(device, ...)` keeps identities, ties, kinds and gradients; going back gives the CPU's module."""
    # Recurrent modules keep weak references to their parameters, which torch refuses to swap a second time.
    on_device = with_tied_parameters(copy.deepcopy(sample.original), tie=not swap)
    on_cpu = with_tied_parameters(copy.deepcopy(sample.original), tie=not swap).to(CPU, **options)
    before = list(on_device.parameters())
    with swapping(swap):
        assert on_device.to(DEVICE, **options) is on_device
        torch.neuron.synchronize()
        assert [id(p) for p in on_device.parameters()] == [id(p) for p in before], "a parameter was replaced by another object"
        assert_same_module(on_device, on_cpu)
        assert_same([p.grad for p in on_device.parameters()], [p.grad for p in on_cpu.parameters()])
        for index, parameter in enumerate(on_device.held.parameters()):
            assert swap or getattr(on_device, f"tied{index}") is parameter, "a tie was lost"
        on_device.cpu()
    assert kinds(on_device) == kinds(on_cpu)
    for one, other in zip(state(on_device).values(), state(on_cpu).values(), strict=True):
        assert one.device == CPU
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def stateful(subject: ModuleSubject, most: int | None) -> list[ModuleSample]:
    """Samples whose module has parameters or buffers."""
    samples = [sample for sample in subject.samples(most) if state(sample.original)]
    if not samples:
        raise NothingToCompare("the module has neither parameters nor buffers")
    return samples


def check_to(subject: ModuleSubject, most: int | None) -> int:
    samples = stateful(subject, most)
    for sample in samples:
        for options in CONVERSIONS:
            for swap in (False, True):
                compare_to(sample, options, swap)
        meta = copy.deepcopy(sample.original).to("meta").to_empty(device=DEVICE)
        assert kinds(meta) == kinds(sample.original)
        assert_same(state(meta), state(sample.original), values=False)
    return len(samples) * (2 * len(CONVERSIONS) + 1)


def saved(state_dict: Any, **options: Any) -> Any:
    """A state dict written and read again."""
    buffer = io.BytesIO()
    torch.save(state_dict, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True, **options)


def check_state_dict(subject: ModuleSubject, most: int | None) -> int:
    """State dicts go from either device to either, through a file or not, assigned or copied; a missing key is the CPU's error."""
    samples = stateful(subject, most)
    for sample in samples:
        on_device = sample.on(DEVICE)
        assert_same(saved(on_device.state_dict()), sample.original.state_dict())
        for given in (on_device.state_dict(), saved(on_device.state_dict(), map_location="cpu")):
            for assign in (False, True):
                fresh = sample.construct()
                if subject.info.is_lazy:
                    fresh = copy.deepcopy(sample.original)
                fresh = fresh.to(subject.dtype)
                fresh.load_state_dict(given, strict=True, assign=assign)
                if not assign:
                    assert_same_module(on_device, fresh)
                else:
                    assert [t.device for t in fresh.state_dict().values()] == [t.device for t in given.values()]
        other = zeroed(sample.on(DEVICE))
        other.load_state_dict(sample.original.state_dict(), strict=True)
        assert_same_module(other, sample.original)
        incomplete = dict(list(sample.original.state_dict().items())[1:]) | {"extra": torch.ones(1)}
        fresh = sample.on(CPU)
        assert_same_error(
            outcome(lambda m=other, s=incomplete: m.load_state_dict(s)), outcome(lambda m=fresh, s=incomplete: m.load_state_dict(s))
        )
    return 7 * len(samples)


def zeroed(module: torch.nn.Module) -> torch.nn.Module:
    """The module with every parameter and buffer zeroed."""
    with torch.no_grad():
        for t in state(module).values():
            t.zero_()
    return module


def unpickled_file(module: torch.nn.Module) -> torch.nn.Module:
    """The module through `torch.save` and `torch.load`."""
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIES = (copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), unpickled_file)


def check_copies(subject: ModuleSubject, most: int | None) -> int:
    """Copies of the module on the device are equal, independent, and compute the same; what cannot be copied on the CPU fails alike."""
    samples = subject.samples(most)
    for sample in samples:
        on_device = sample.on(DEVICE)
        for make in COPIES:
            reference, copied = outcome(lambda s=sample, m=make: m(s.on(CPU))), outcome(lambda m=make, d=on_device: m(d))
            assert_same_error(copied, reference)
            if reference.error is not None:
                continue
            assert_same_module(copied.result, sample.original)
            if sample.inputs is not None:
                on_cpu, cpu_inputs = sample.on_with_inputs(CPU)
                device_inputs = place(sample.inputs, DEVICE)
                compare_calls(lambda m=copied.result, i=device_inputs: forward(m, i), lambda m=on_cpu, i=cpu_inputs: forward(m, i))
            zeroed(copied.result)
        if not subject.training:
            assert_same_module(on_device, sample.original)
    return len(samples) * len(COPIES)


def check_construct(subject: ModuleSubject, most: int | None) -> int:
    """Constructors with `device=` and under a default device: the CPU's shapes and dtypes, and its values where they are not drawn."""
    compared = 0
    for sample in subject.samples(most):
        first, second = (constructed(sample, CPU, seed) for seed in (0, 1))
        fixed = {name for name, t in first.items() if torch.equal(t, second[name])} if not subject.info.is_lazy else set()
        takes_device = "device" in inspect.signature(subject.info.module_cls.__init__).parameters
        ways = [constructed(sample, DEVICE, 0, default=DEVICE), *([constructed(sample, DEVICE, 0, device=DEVICE)] if takes_device else [])]
        for way in ways:
            assert list(way) == list(first)
            for name, one in way.items():
                if subject.info.is_lazy and torch.nn.parameter.is_lazy(one):
                    assert one.device == DEVICE
                else:
                    assert_same(one, first[name], values=name in fixed)
            compared += 1
        if subject.info.is_lazy:
            compare_lazy(sample)
    return compared


def constructed(sample: ModuleSample, where: torch.device, seed: int, **options: Any) -> dict[str, Any]:
    """Parameters and buffers of a module made with tensors of `where` among its arguments."""
    seed_all(seed)
    return state(sample.construct(where, **options))


def compare_lazy(sample: ModuleSample) -> None:
    """A lazy module moved before its first forward gets its parameters on the device."""

    def run(device: torch.device) -> Any:
        module = sample.construct().to(device, sample.subject.dtype)
        return forward(module, place(sample.inputs, device)), state(module)

    compare_calls(lambda: run(DEVICE), lambda: run(CPU))


@source("module_to")
def to_cases():
    return module_cases("module_to", check_to, dtypes=lambda info: set(info.dtypes))


@source("module_state_dict")
def state_dict_cases():
    return module_cases("module_state_dict", check_state_dict, dtypes=lambda info: set(info.dtypes))


@source("module_copies")
def copy_cases():
    return module_cases("module_copies", check_copies, dtypes=lambda info: set(info.dtypes), modes=lambda info: (False,))


@source("module_construct")
def construct_cases():
    return module_cases(
        "module_construct", check_construct, dtypes=lambda info: {torch.float32} & set(info.dtypes), modes=lambda info: (True,)
    )
