"""What "the same as on the CPU" means: outcomes (result or error, and warnings) of one call on two devices, and their comparison."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from .samples import CPU, DEVICE, seed_all, tensors_of


@dataclasses.dataclass
class Outcome:
    """What a call did: its result or its error, the warnings on the way, and whether `compare_calls` found its values to be random."""

    result: Any = None
    error: Exception | None = None
    warnings: tuple[str, ...] = ()
    random: bool = False


def outcome(function: Callable[[], Any], *, seed: int = 0) -> Outcome:
    """Call a function of no arguments with seeded generators and keep what happened."""
    seed_all(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = function(), None
        except Exception as raised:
            result, error = None, raised
    return Outcome(result, error, tuple(neutral(str(w.message)) for w in caught))


# Names of a device, a dispatch key or an address say nothing about behaviour.
_NEUTRAL = [
    (re.compile(r"neuron(:\d+)?|cpu(:\d+)?", re.I), "DEVICE"),
    (re.compile(r"PrivateUse1|PrivateUseOne"), "DEVICE"),
    (re.compile(r"torch\.(?:DEVICE\.)?(\w+)Tensor"), r"DEVICE\1Type"),
    (re.compile(r"0x[0-9a-f]+"), "ADDRESS"),
    (re.compile(r"Exception raised from .*", re.S), ""),
    (re.compile(r"\s+"), " "),
]


def neutral(text: str) -> str:
    """A message without the names of devices, addresses and C++ frames."""
    for pattern, replacement in _NEUTRAL:
        text = pattern.sub(replacement, text)
    return text.strip()


def assert_same_error(on_device: Outcome, on_cpu: Outcome, *, message: bool = True) -> None:
    """The same type of error, or none on both; with `message`, the same text but for the device's name."""
    if on_cpu.error is None and on_device.error is not None:
        raise AssertionError(f"the CPU succeeds, the device raises {describe(on_device.error)}") from on_device.error
    if on_cpu.error is None:
        return
    assert on_device.error is not None, f"the CPU raises {describe(on_cpu.error)}, the device succeeds"
    same = type(on_device.error) is type(on_cpu.error) and (not message or neutral(str(on_device.error)) == neutral(str(on_cpu.error)))
    if not same:
        raise AssertionError(f"the CPU raises {describe(on_cpu.error)}, the device {describe(on_device.error)}") from on_device.error


def describe(error: Exception) -> str:
    """Type and first lines of an error."""
    return f"{type(error).__name__}: {str(error)[:300]}"


def assert_same(
    result: Any, reference: Any, *, values: bool = True, strides: bool = True, rtol: float | None = None, atol: float | None = None
) -> None:
    """`result` lives on the device and is otherwise the same tree of tensors and numbers as `reference` on the CPU.

    Compared: structure, dtype, shape, layout bits, requires_grad, (with `strides`) strides, and (with `values`) the elements, by default
    within the tolerance that `torch.testing` has for the dtype. NaN equals NaN.
    """
    leaves, structure = tree_flatten(result)
    expected, expected_structure = tree_flatten(reference)
    assert structure == expected_structure, f"structure {structure} instead of {expected_structure}"
    for index, (one, other) in enumerate(zip(leaves, expected, strict=True)):
        where = f"result {index}: "
        assert type(one) is type(other), f"{where}{type(one)} instead of {type(other)}"
        if isinstance(other, torch.Tensor):
            _assert_same_tensor(one, other, values, strides, rtol, atol, where)
        elif isinstance(other, torch.device):
            assert one == (DEVICE if other == CPU else other), f"{where}{one} instead of {other}"
        elif values and isinstance(other, (int, float, complex)):
            torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text, where=where: where + text)
        elif values and other != "cpu":
            assert one == other, f"{where}{one!r} instead of {other!r}"


def _assert_same_tensor(
    one: torch.Tensor, other: torch.Tensor, values: bool, strides: bool, rtol: float | None, atol: float | None, where: str
) -> None:
    assert one.device == (DEVICE if other.device == CPU else other.device), f"{where}on {one.device}"
    for name in ("dtype", "shape", "layout", "requires_grad", "is_leaf"):
        assert getattr(one, name) == getattr(other, name), f"{where}{name} {getattr(one, name)} instead of {getattr(other, name)}"
    if other.layout is torch.strided and not other.is_nested:
        assert not strides or same_strides(one, other), (
            f"{where}strides {one.stride()} instead of {other.stride()} of shape {tuple(other.shape)}"
        )
        assert one.is_conj() == other.is_conj() and one.is_neg() == other.is_neg(), f"{where}conjugate or negative bit differs"
    if values:
        torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: where + text)


def same_strides(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal strides in each dimension where a stride means something (more than one element in the tensor and in the dimension)."""
    if other.numel() == 0:
        return True
    return all(a == b for a, b, size in zip(one.stride(), other.stride(), other.shape, strict=True) if size > 1)


def compare_calls(
    on_device: Callable[[], Any],
    on_cpu: Callable[[], Any],
    *,
    message: bool = False,
    exact: Callable[[], Any] | None = None,
    **tolerance: Any,
) -> Outcome:
    """Run both calls with the same seed; same error, or same results. Returns the device's outcome.

    Where values differ, they are also right if they are as near to those of `exact`, the call in float64, as the CPU's are (`as_near`).
    Where they differ and the operator draws random numbers, everything but the values must agree (tests/python/test_random_* look at
    those).
    """
    reference = outcome(on_cpu)
    result = outcome(on_device)
    assert_same_error(result, reference, message=message)
    if reference.error is None:
        try:
            assert_same(result.result, reference.result, **tolerance)
        except AssertionError:
            without_values = {"values": False, "strides": tolerance.get("strides", True)}
            if draws_random_numbers(on_cpu):
                assert_same(result.result, reference.result, **without_values)
                result.random = True
            elif exact is not None and as_near(result.result, reference.result, outcome(exact).result):
                assert_same(result.result, reference.result, **without_values)
            else:
                raise
    return result


# Sums of products cancel, so that one rounding of a term may be more than the tolerance of the sum.
AS_NEAR = 2.0


def as_near(result: Any, reference: Any, exact: Any) -> bool:
    """Whether each tensor is right although it differs from the reference: within the tolerance that `torch.testing` has for its dtype
    from the exact one, or at most `AS_NEAR` times the reference's largest distance from it.

    Infinities and NaN have no distance: where the reference or the exact tensor has one, the result is the reference's.
    """
    trees = [[t.detach().cpu() for t in tensors_of(tree)] for tree in (result, reference, exact)]
    if len({len(tree) for tree in trees}) != 1:
        return False
    for mine, other, true in zip(*trees, strict=True):
        if not other.is_floating_point():
            if not torch.equal(mine, other):
                return False
        elif mine.shape != other.shape or true.shape != other.shape or not _as_near_tensor(mine, other, true):
            return False
    return True


def _as_near_tensor(mine: torch.Tensor, other: torch.Tensor, true: torch.Tensor) -> bool:
    finite = other.isfinite() & true.isfinite()
    if not torch.allclose(mine[~finite], other[~finite], rtol=0, atol=0, equal_nan=True):
        return False
    distances, allowed = (mine - true)[finite].abs(), (other - true)[finite].abs()
    if not distances.numel() or distances.max() <= AS_NEAR * allowed.max():
        return True
    rtol, atol = default_tolerances(mine)
    return bool((distances <= atol + rtol * true[finite].abs()).all())


class _DrawsRandomNumbers(TorchDispatchMode):
    """Notices operators that PyTorch tags as drawing from a generator."""

    seen = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen = self.seen or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def draws_random_numbers(on_cpu: Callable[[], Any]) -> bool:
    """Whether the call draws from a generator (many samples seed it themselves, so its state says nothing)."""
    with warnings.catch_warnings(), _DrawsRandomNumbers() as mode:
        warnings.simplefilter("ignore")
        with contextlib.suppress(Exception):
            on_cpu()
    return mode.seen
