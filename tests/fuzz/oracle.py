"""Runs a program on the CPU and on the device and says how they differ."""

import warnings
from collections.abc import Callable
from typing import Any

from .compare import differences
from .interpreter import CPU, NEURON, Outcome, execute, run, run_function
from .program import Program, Step


class DifferenceError(AssertionError):
    """The device does not do what the CPU does; the message is a script that shows it."""


def check(program: Program, execute: Callable[[Step, dict[str, Any]], None] = execute) -> None:
    """Raise if the program does something else on the device than on the CPU. `execute` runs a step on the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if program.compiled:
            _check_compiled(program)
            return
        expected, actual = run(program, CPU), run(program, NEURON, execute)
        found = list(differences(program, expected, actual))
    _raise(program, expected, actual, found)


def _check_compiled(program: Program) -> None:
    """Compare with eager execution on the CPU. What PyTorch's own backend `aot_eager` does on the CPU in the same way is PyTorch's matter."""
    expected = run_function(program, CPU, None)
    actual = run_function(program, NEURON, "neuron")
    found = list(differences(program, expected, actual))
    if found and not list(differences(program, run_function(program, CPU, "aot_eager"), actual)):
        return
    _raise(program, expected, actual, found)


def _raise(program: Program, expected: Outcome, actual: Outcome, found: list[str]) -> None:
    if found:
        raise DifferenceError(
            "\n\n" + program.snippet(expected.errors.keys() | actual.errors.keys()) + "\n" + "\n".join(f"# {line}" for line in found)
        )
