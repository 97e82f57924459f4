"""What of two runs must agree, and the first place where it does not.

Values are compared bit by bit: the device runs the CPU's arithmetic. Devices appear in what is compared only as places (see `program.py`).
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .exclusions import Case, excluded
from .interpreter import Outcome
from .program import Program

# Names of the device in messages, and what the CPU says there.
_RENAMED = (
    (re.compile(r"\b(?:torch\.(?:neuron\.|cpu\.)?|neuron|CPU)(\w+?)(?:Type|Tensor)\b"), r"\1Tensor"),
    (re.compile(r",? ?device='[\w:]+'"), ""),
    (re.compile(r"\b(neuron|privateuseone)(:\d+)?\b", re.IGNORECASE), "cpu"),
    (re.compile(r"\bPrivateUse1\b"), "CPU"),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"backend='\w+'"), "backend"),
)

# What is compared of every tensor, and what only of the results of eager programs: `torch.compile` promises less.
_FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "type": lambda tensor: type(tensor).__name__,
    "dtype": lambda tensor: tensor.dtype,
    "shape": lambda tensor: tuple(tensor.shape),
    "stride": torch.Tensor.stride,
    "storage offset": torch.Tensor.storage_offset,
    "requires_grad": lambda tensor: tensor.requires_grad,
    "conj": torch.Tensor.is_conj,
    "neg": torch.Tensor.is_neg,
}
_AUTOGRAD_FACTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "storage size": lambda tensor: tensor.untyped_storage().nbytes(),
    "is_leaf": lambda tensor: tensor.is_leaf,
    "inference": torch.Tensor.is_inference,
    "grad_fn": lambda tensor: type(tensor.grad_fn).__name__,
    "view": lambda tensor: tensor._is_view(),
    "version": lambda tensor: None if tensor.is_inference() else tensor._version,
}


def normal_message(message: str) -> str:
    """The first line of an error message without what may differ: device names and addresses."""
    for pattern, replacement in _RENAMED:
        message = pattern.sub(replacement, message)
    return message.split("\nException raised from")[0].strip()


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the host, with every NaN the same."""
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if host.is_complex():
        host = torch.view_as_real(host)
    if host.is_floating_point():
        host = torch.where(host.isnan(), torch.nan, host)
        host = host.contiguous().view({8: torch.int64, 4: torch.int32, 2: torch.int16}[host.element_size()])
    return host


def facts(value: Any, *, autograd: bool) -> dict[str, Any]:
    """What is compared of a value besides its elements and its storage. A fact that cannot be asked for is the error message."""
    if not isinstance(value, torch.Tensor):
        return {"type": type(value).__name__, "value": _plain(value)}
    known = {}
    for name, ask in (_FACTS | _AUTOGRAD_FACTS if autograd else _FACTS).items():
        try:
            known[name] = ask(value)
        except RuntimeError as error:
            known[name] = normal_message(str(error))
    if not autograd and isinstance(known["stride"], tuple):
        # What a trace promises of dimensions of size 1 is not always what eager does, and means nothing.
        known["stride"] = tuple(stride for stride, size in zip(known["stride"], value.shape, strict=True) if size != 1)
    return known


def gradient(value: Any) -> torch.Tensor | None:
    """The gradient that a leaf has collected."""
    try:
        return value.grad if isinstance(value, torch.Tensor) and value.is_leaf else None
    except RuntimeError:  # a view whose base was modified
        return None


# Operators that run on the project's own kernels, whose sums have another order than the CPU's.
ATTENTION = "scaled_dot_product_attention"
OWN_KERNELS = (ATTENTION, "matmul", " @ ", "addmm", "baddbmm", ".mm(", ".bmm(", "linear(", "einsum", "outer(", "tensordot(", "multi_dot(")


def may_round_differently(program: Program) -> bool:
    """Whether floats may differ in the last places: compiled regions have approximations of functions and sums of their own."""
    return program.compiled or any(name in step.code for step in program.steps for name in OWN_KERNELS)


def behind_products(program: Program) -> set[int]:
    """Variables computed from results of products: a logarithm or a comparison makes much of a last place."""
    products: set[int] = set()
    behind: set[int] = set()
    for step in program.steps:
        touched = step.targets or step.reads  # a statement without targets may write to what it names
        if not (products | behind).isdisjoint(step.reads):
            behind.update(touched)
        if any(name in step.code for name in OWN_KERNELS):
            products.update(touched)
    return behind


def near(expected: Any, actual: Any, *, lost_nan: bool = False) -> bool:
    """Whether floats agree but for some units in the last place of the largest element; False for everything else.

    With `lost_nan`, NaN may stand for any number of the CPU's.
    """
    if not (isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor)):
        return False
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    left, right = (x.detach().resolve_conj().resolve_neg().cpu() for x in (expected, actual))
    if not (left.is_floating_point() or left.is_complex()):
        return False
    if lost_nan:
        left = torch.where(right.isnan(), right, left)
    eps = torch.finfo(left.dtype).eps
    allowed = 4 * eps if eps > 1e-4 else 64 * eps
    wide = left.abs().double() if not left.is_complex() else left.abs()
    finite = wide[wide.isfinite()]
    scale = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(right, left, rtol=allowed, atol=allowed * scale, equal_nan=True)


def differences(program: Program, left: Outcome, right: Outcome) -> Iterator[str]:
    """Sentences about what differs between the run on the CPU (left) and the other one."""
    yield from _errors(program, left, right)
    compiled = program.compiled
    # The CPU's attention gives zeros to a query whose products with keys are NaN, as if all keys were masked; ours gives NaN, as sums do.
    behind = behind_products(program)
    lost_nan = any(ATTENTION in step.code for step in program.steps)
    unspecified = {number for step in program.steps for number in (*step.spoils, *(step.targets if step.random else ()))}
    steps = {number: step for step in program.steps for number in step.targets}
    if left.values.keys() != right.values.keys():
        yield f"variables that are bound: {sorted(left.values)} and {sorted(right.values)}"
        return
    sharing: tuple[dict[int, str], dict[int, str]] = ({}, {})
    for number in left.values:
        pairs = [(f"v{number}", left.values[number], right.values[number])]
        grads = [gradient(value) for value in pairs[0][1:]]
        if any(isinstance(grad, torch.Tensor) for grad in grads):
            pairs.append((f"v{number}.grad", *grads))
        for name, expected, actual in pairs:
            ignored = excluded(Case(program, steps.get(number), name.endswith(".grad")))
            if number in unspecified:
                ignored.add("elements")
            if may_round_differently(program) and (number in behind or near(expected, actual, lost_nan=lost_nan)):
                ignored.add("elements")
            yield from _values(name, expected, actual, autograd=not compiled, ignored=ignored)
            if "sharing" not in ignored and isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
                first = [known.setdefault(_storage(value), name) for known, value in zip(sharing, (expected, actual), strict=True)]
                if first[0] != first[1]:
                    yield f"{name} shares the storage of {first[0]} on the CPU and of {first[1]} on the device"


def _errors(program: Program, left: Outcome, right: Outcome) -> Iterator[str]:
    for index in sorted(left.errors.keys() | right.errors.keys()):
        expected, actual = left.errors.get(index), right.errors.get(index)
        text = "the compiled function" if program.compiled else f"`{program.steps[index].text}`"
        if expected is None or actual is None:
            yield f"{text} raises on the {'device' if expected is None else 'CPU'} only: {': '.join(expected or actual or ())}"
        elif expected[0] != actual[0] or normal_message(expected[1]) != normal_message(actual[1]):
            yield f"{text} raises {expected[0]}: {expected[1]}\n  on the CPU, and {actual[0]}: {actual[1]}"


def _values(name: str, expected: Any, actual: Any, *, autograd: bool, ignored: set[str]) -> Iterator[str]:
    left, right = facts(expected, autograd=autograd), facts(actual, autograd=autograd)
    wrong = [key for key in left.keys() | right.keys() if left.get(key) != right.get(key) and key not in ignored]
    if wrong:
        yield f"{name}: " + "; ".join(f"{key} {left.get(key)} on the CPU, {right.get(key)} on the device" for key in sorted(wrong))
        return
    if isinstance(expected, torch.Tensor) and "elements" not in ignored and not torch.equal(bits(expected), bits(actual)):
        yield f"{name} holds\n  {_elements(expected)} on the CPU, and\n  {_elements(actual)} on the device"


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _elements(tensor: torch.Tensor) -> str:
    return str(tensor.detach().cpu().tolist())


def _plain(value: Any) -> Any:
    """A Python value in a form that equals itself."""
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value if isinstance(value, (int, float, bool, str, torch.dtype, type(None))) else type(value).__name__
