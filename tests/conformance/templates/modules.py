"""Modules compute on the device what they compute on the CPU: forward, derivatives, modes, layouts of inputs, dtypes, errors."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleErrorEnum
from torch.utils._pytree import tree_map

from ..case import NothingToCompare, source
from ..compare import assert_same_error, compare_calls, outcome
from ..samples import CPU, DEVICE, place, seed_all, tensors_of
from .layouts import CHANGES, changed
from .modules_samples import ModuleSample, ModuleSubject, forward, module_cases, state


def forward_facts(module: torch.nn.Module, inputs: Any) -> Any:
    """The result, and what inputs, parameters and buffers are afterwards."""
    return forward(module, inputs), inputs, state(module)


def compare_forward(sample: ModuleSample, inputs: Any = None) -> None:
    """One forward on both devices."""
    on_cpu, on_device = sample.on_with_inputs(CPU, inputs), sample.on_with_inputs(DEVICE, inputs)
    compare_calls(lambda: forward_facts(*on_device), lambda: forward_facts(*on_cpu), **tolerance(sample.subject))


def runnable(subject: ModuleSubject, most: int | None, **options: Any) -> tuple[ModuleSample, ...]:
    """The samples that have inputs for a forward."""
    samples = tuple(sample for sample in subject.samples(most, **options) if sample.inputs is not None)
    if not samples:
        raise NothingToCompare("the database has no inputs for this module")
    return samples


def check_forward(subject: ModuleSubject, most: int | None) -> int:
    samples = runnable(subject, most)
    for sample in samples:
        compare_forward(sample)
    return len(samples)


RECURRENT = (torch.nn.RNNBase, torch.nn.RNNCellBase)


def tolerance(subject: ModuleSubject, dtype: torch.dtype | None = None) -> dict[str, float]:
    """Recurrent layers in half precision: cells are fused on the device, and products of other strides round elsewhere.

    The samples' layers with ReLU grow what one rounding changes: the CPU is up to 0.04 from float32 in bfloat16, as is the device
    (tests/python/test_operators.py compares both with float32). `dtype`: in which the module computes, if not the subject's.
    """
    dtype = dtype or subject.dtype
    if issubclass(subject.info.module_cls, RECURRENT) and dtype in (torch.bfloat16, torch.float16):
        return {"rtol": 0.03, "atol": 0.05 if dtype is torch.bfloat16 else 0.01}
    return {}


class Probe:
    """Differentiates one sample on one device, along directions that are the same on every device."""

    def __init__(self, sample: ModuleSample, device: torch.device) -> None:
        self.device = device
        self.module, self.inputs = sample.on_with_inputs(device)
        self.leaves = [t for t in [*tensors_of(self.inputs), *self.module.parameters()] if t.requires_grad]
        self.directions = torch.Generator().manual_seed(1)

    def direction(self, like: torch.Tensor) -> torch.Tensor:
        """A pseudo-random tensor of the same shape and dtype."""
        drawn = torch.randn(like.shape, generator=self.directions, dtype=torch.complex128 if like.is_complex() else torch.float64)
        return drawn.to(like.dtype).to(self.device)

    def outputs(self) -> list[torch.Tensor]:
        """The differentiable results. Inputs are copied, so that modules that write to them may."""
        copies = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf, self.inputs)
        return [t for t in tensors_of(forward(self.module, copies)) if t.requires_grad]

    def backward(self) -> Any:
        """The gradients that two backward passes accumulate in inputs and parameters."""
        for _ in range(2):
            outputs = self.outputs()
            if outputs:
                torch.autograd.backward(outputs, [self.direction(t) for t in outputs])
        return [t.grad for t in self.leaves], state(self.module)

    def double_backward(self) -> Any:
        """The derivatives of the gradients."""
        outputs = self.outputs()
        if not outputs:
            return []
        first = torch.autograd.grad(outputs, self.leaves, [self.direction(t) for t in outputs], create_graph=True, allow_unused=True)
        again = [t for t in first if t is not None and t.requires_grad]
        if not again:
            return [first]
        return [first, torch.autograd.grad(again, self.leaves, [self.direction(t) for t in again], allow_unused=True)]


def check_derivatives(method: str, subject: ModuleSubject, most: int | None) -> int:
    compared = 0
    for sample in runnable(subject, most, requires_grad=True):
        on_cpu, on_device = Probe(sample, CPU), Probe(sample, DEVICE)
        if on_cpu.leaves:
            compare_calls(getattr(on_device, method), getattr(on_cpu, method), **tolerance(subject))
            compared += 1
    if not compared:
        raise NothingToCompare("nothing requires a gradient")
    return compared


def check_modes(subject: ModuleSubject, most: int | None) -> int:
    """Two steps of training, then evaluation, then training again."""

    def sequence(module: torch.nn.Module, inputs: Any) -> Any:
        flags = [[m.training for m in module.train().modules()]]
        for _ in range(2):
            forward(module, inputs)
        flags.append([m.training for m in module.eval().modules()])
        evaluated = forward(module, inputs)
        flags.append([m.training for m in module.train().modules()])
        return evaluated, flags, state(module)

    samples = runnable(subject, most)
    for sample in samples:
        on_cpu, on_device = sample.on_with_inputs(CPU), sample.on_with_inputs(DEVICE)
        compare_calls(lambda g=on_device: sequence(*g), lambda g=on_cpu: sequence(*g), **tolerance(subject))
    return len(samples)


def check_layouts(subject: ModuleSubject, most: int | None) -> int:
    """Inputs that are not contiguous, broadcast, empty and so on."""
    compared = 0
    for sample in runnable(subject, most):
        for change in CHANGES:
            try:
                compare_forward(sample, changed(sample.inputs, change))
            except AssertionError as difference:
                raise AssertionError(f"layout `{change.__name__}`: {difference}") from difference
            compared += 1
    return compared


FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def check_memory_format(subject: ModuleSubject, most: int | None) -> int:
    """Module, inputs or both in channels_last: same strides of results, gradients and parameters."""

    def run(module: torch.nn.Module, inputs: Any, convert: torch.memory_format | None) -> Any:
        if convert is not None:
            module = module.to(memory_format=convert)
        result = forward(module, inputs)
        outputs = [t for t in tensors_of(result) if t.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
        return result, [t.grad for t in tensors_of(inputs)], [p.grad for p in module.parameters()], state(module)

    def formatted(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim() in FORMATS:
            return leaf.detach().contiguous(memory_format=FORMATS[leaf.dim()]).requires_grad_(leaf.requires_grad)
        return leaf

    compared = 0
    for sample in runnable(subject, most, requires_grad=True):
        dims = {t.dim() for t in tensors_of(sample.inputs)} & set(FORMATS)
        for dim in sorted(dims):
            for convert_module, convert_inputs in ((True, True), (True, False), (False, True)):
                inputs = tree_map(formatted, sample.inputs) if convert_inputs else sample.inputs
                on_cpu, on_device = sample.on_with_inputs(CPU, inputs), sample.on_with_inputs(DEVICE, inputs)
                convert = FORMATS[dim] if convert_module else None
                compare_calls(lambda g=on_device, c=convert: run(*g, c), lambda g=on_cpu, c=convert: run(*g, c))
                compared += 1
    if not compared:
        raise NothingToCompare("no input has four or five dimensions")
    return compared


CONVERSIONS = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32, "double": torch.float64}


def check_dtypes(subject: ModuleSubject, most: int | None) -> int:
    """`.half()` and its like on the device, and a forward with inputs of that dtype."""

    def run(module: torch.nn.Module, inputs: Any, name: str) -> Any:
        convert = lambda leaf: getattr(leaf, name)() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf  # noqa: E731
        returned = getattr(module, name)()
        return returned is module, forward(module, tree_map(convert, inputs)), state(module)

    samples = runnable(subject, most)
    for sample in samples:
        for name, dtype in CONVERSIONS.items():
            on_cpu, on_device = sample.on_with_inputs(CPU), sample.on_with_inputs(DEVICE)
            compare_calls(lambda g=on_device, n=name: run(*g, n), lambda g=on_cpu, n=name: run(*g, n), **tolerance(subject, dtype))
    return len(samples) * len(CONVERSIONS)


def check_errors(subject: ModuleSubject, most: int | None) -> int:
    """The database's error inputs: same type, same message."""
    compared = 0
    seed_all()
    made = subject.info.module_error_inputs_func(
        subject.info, device="cpu", dtype=subject.dtype, requires_grad=False, training=subject.training
    )
    for error_input in made:
        given = error_input.module_error_input
        sample = ModuleSample(subject, given)

        def run(device: torch.device, sample: ModuleSample = sample, at: ModuleErrorEnum = error_input.error_on) -> Any:
            module = sample.construct(device).to(device, subject.dtype).train(subject.training)
            return forward(module, place(sample.inputs, device)) if at is ModuleErrorEnum.FORWARD_ERROR else module

        assert_same_error(outcome(lambda r=run: r(DEVICE)), outcome(lambda r=run: r(CPU)))
        compared += 1
    return compared


@source("module_forward")
def forward_cases():
    return module_cases("module_forward", check_forward)


@source("module_backward")
def backward_cases():
    return module_cases("module_backward", lambda subject, most: check_derivatives("backward", subject, most))


@source("module_double_backward")
def double_backward_cases():
    return module_cases(
        "module_double_backward",
        lambda subject, most: check_derivatives("double_backward", subject, most),
        where=lambda info: info.supports_gradgrad,
        dtypes=lambda info: set(info.dtypes),
    )


@source("module_modes")
def mode_cases():
    return module_cases("module_modes", check_modes, where=lambda info: info.train_and_eval_differ, modes=lambda info: (True,))


@source("module_layouts")
def layout_cases():
    return module_cases("module_layouts", check_layouts)


@source("module_memory_format")
def memory_format_cases():
    return module_cases("module_memory_format", check_memory_format)


@source("module_dtypes")
def dtype_cases():
    return module_cases("module_dtypes", check_dtypes, dtypes=lambda info: set(info.dtypes) & {torch.float32})


@source("module_errors")
def error_cases():
    return module_cases(
        "module_errors", check_errors, where=lambda info: info.module_error_inputs_func is not None, dtypes=lambda info: set(info.dtypes)
    )
