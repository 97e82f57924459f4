"""Runs a program: step by step on some device, or as one compiled function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as functional

from .program import Program, Step

# What the names `dev`, `other` and `copy` in a step mean. On the CPU a move to another place copies too: storages are shared alike.
CPU = {"dev": "cpu", "other": "cpu", "copy": True}
NEURON = {"dev": "neuron:0", "other": "neuron:1", "copy": False}


@dataclass
class Outcome:
    """What a run leaves behind."""

    values: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)  # by step: name of the exception's type, message


@lru_cache(maxsize=4096)
def _code(text: str, mode: str = "exec") -> CodeType:
    return compile(text, "<program>", mode)


def names_of(places: Mapping[str, Any]) -> dict[str, Any]:
    """The names that steps see, before any variable."""
    return {"torch": torch, "F": functional, **places}


def evaluate(code: str, names: dict[str, Any]) -> Any:
    """The value of an expression."""
    return eval(_code(code, "eval"), names)


def execute(step: Step, names: dict[str, Any]) -> None:
    """Run one step over `names`."""
    if not step.targets:
        exec(_code(step.code), names)
        return
    result = evaluate(step.code, names)
    for number, part in zip(step.targets, result if step.unpack else (result,), strict=True):
        names[f"v{number}"] = part


def error_of(error: Exception) -> tuple[str, str]:
    """The part of an exception that is compared."""
    return type(error).__name__, str(error)


def run(program: Program, places: Mapping[str, Any], execute: Callable[[Step, dict[str, Any]], None] = execute) -> Outcome:
    """Run the program step by step; a step that raises leaves its targets unbound. `execute` may be a faulty one (to test the fuzzer)."""
    names = names_of(places)
    outcome = Outcome()
    for given in program.inputs:
        exec(_code(given.text), names)
    for index, step in enumerate(program.steps):
        try:
            execute(step, names)
        except Exception as error:
            outcome.errors[index] = error_of(error)
    outcome.values = {number: names[f"v{number}"] for number in program.variables() if f"v{number}" in names}
    return outcome


def run_function(program: Program, places: Mapping[str, Any], backend: str | None) -> Outcome:
    """Run the program as one function (compiled if a backend is named), then backward from its results. An error is that of step 0."""
    names = names_of(places)
    for given in program.inputs:
        exec(_code(given.text), names)
    exec(_code(program.function()), names)
    function = names["program"]
    if backend is not None:
        torch._dynamo.reset()
        function = torch.compile(function, backend=backend)
    arguments = [names[f"v{given.number}"] for given in program.inputs]
    outcome = Outcome(values={given.number: argument for given, argument in zip(program.inputs, arguments, strict=True)})
    try:
        results = function(places["dev"], places["other"], places["copy"], *arguments)
        outcome.values.update(zip(program.results(), results, strict=True))
        roots = [value for value in results if isinstance(value, torch.Tensor) and value.requires_grad]
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
    except Exception as error:
        outcome.errors[0] = error_of(error)
    return outcome
