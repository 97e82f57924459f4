"""Runs a program on the CPU and on the device and says how they differ."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .compare import differences
from .interpreter import CPU, NEURON, Outcome, execute, run, run_function
from .program import Program, Step


class DifferenceError(AssertionError):
    """The device does not do what the CPU does; the message is a script that shows it."""

    def __init__(self, program: Program, expected: Outcome, actual: Outcome, found: list[str]) -> None:
        script = program.snippet(expected.errors.keys() | actual.errors.keys())
        super().__init__("\n\n" + script + "\n" + "\n".join("# " + line.replace("\n", "\n# ") for line in found))
        self.program = program
        self.found = found


@dataclass
class Totals:
    """What was run. Shrinking counts too."""

    eager: int = 0
    compiled: int = 0
    steps: int = 0
    raising: int = 0  # steps that raise on both sides
    torch_own: int = 0  # compiled programs that PyTorch's own backend `aot_eager` gives the same other results for
    not_compared: int = 0  # compiled programs whose backward raises in eager mode


def check(program: Program, execute: Callable[[Step, dict[str, Any]], None] = execute, totals: Totals | None = None) -> None:
    """Raise if the program does something else on the device than on the CPU. `execute` runs a step on the device."""
    totals = totals if totals is not None else Totals()
    totals.steps += len(program.steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if program.compiled:
            _check_compiled(program, totals)
            return
        expected, actual = run(program, CPU), run(program, NEURON, execute)
        found = list(differences(program, expected, actual))
    totals.eager += 1
    totals.raising += len(expected.errors)
    if found:
        raise DifferenceError(program, expected, actual, found)


def _check_compiled(program: Program, totals: Totals) -> None:
    """Compare with eager execution on the CPU: tensors of the device, and tensors of the host, which the backend moves by itself.

    What PyTorch's own backend `aot_eager` gives alike is PyTorch's matter: on the CPU, or on the device itself, since PyTorch traces some
    host tensors otherwise (writes to 0-d float64 tensors of the CPU are lost). Faults of single operators are for eager programs to find.
    """
    totals.compiled += 1
    expected = run_function(program, CPU, None)
    if expected.errors:
        totals.not_compared += 1
        return
    torch_own = False
    for places in (NEURON, CPU):
        actual = run_function(program, places, "neuron")
        found = list(differences(program, expected, actual))
        if not found:
            continue
        if all(list(differences(program, run_function(program, others, "aot_eager"), actual)) for others in (CPU, NEURON)):
            raise DifferenceError(program, expected, actual, [*found, f"(the tensors lay on {places['dev']})"])
        torch_own = True
    totals.torch_own += torch_own
