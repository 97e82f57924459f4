"""A program: inputs and steps over numbered variables `v0`, `v1`, ..., and its form as a runnable Python snippet."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch

# Names that a step's text may use for where a tensor lives: the device under test, another core of it, and the host.
DEV, OTHER, HOST = "dev", "other", '"cpu"'
PLACES = (DEV, OTHER, HOST)
VARIABLE = re.compile(r"\bv(\d+)\b")


@dataclass(frozen=True)
class Input:
    """A tensor that the program starts with; `values` are nested lists of Python numbers."""

    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    values: Any
    place: str = DEV
    requires_grad: bool = False

    @property
    def text(self) -> str:
        """The statement that makes it."""
        grad = ", requires_grad=True" if self.requires_grad else ""
        if 0 in self.shape:
            return f"v{self.number} = torch.empty({self.shape}, dtype={self.dtype}, device={self.place}{grad})"
        return f"v{self.number} = torch.tensor({_literal(self.values)}, dtype={self.dtype}, device={self.place}{grad})"


@dataclass(frozen=True)
class Step:
    """One statement. `code` is an expression if `targets` are bound to its results, else any statement."""

    code: str
    targets: tuple[int, ...] = ()
    unpack: bool = False  # the results are a sequence, also if there is one
    random: bool = False  # the values of the targets are not specified
    spoils: tuple[int, ...] = ()  # variables whose elements are not specified from here on (uninitialised memory)

    @property
    def text(self) -> str:
        """The statement."""
        if not self.targets:
            return self.code
        names = ", ".join(f"v{number}" for number in self.targets)
        return f"{names}{',' if self.unpack and len(self.targets) == 1 else ''} = {self.code}"

    @property
    def reads(self) -> tuple[int, ...]:
        """Numbers of the variables that the statement names."""
        return tuple(dict.fromkeys(int(number) for number in VARIABLE.findall(self.code)))


@dataclass(frozen=True)
class Program:
    """Inputs, then steps. With `compiled`, the steps are one function that `torch.compile` gets."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    compiled: bool = False

    def variables(self) -> Iterator[int]:
        """All variables in the order in which they are bound."""
        for given in self.inputs:
            yield given.number
        for step in self.steps:
            yield from step.targets

    def results(self) -> tuple[int, ...]:
        """Variables that a compiled program returns: those that no later step reads, so that the others may die inside."""
        read = {number for step in self.steps for number in step.reads}
        return tuple(number for step in self.steps for number in step.targets if number not in read)

    def function(self) -> str:
        """The steps as one function of the inputs."""
        arguments = "".join(f", v{given.number}" for given in self.inputs)
        lines = [f"def program(dev, other, copy{arguments}):"]
        lines += [f"    {line}" for step in self.steps for line in step.text.splitlines()]
        lines.append(f"    return ({''.join(f'v{number}, ' for number in self.results())})")
        return "\n".join(lines)

    def snippet(self, raising: Collection[int] = ()) -> str:
        """A script that runs the program on the CPU and on the device and prints what comes out. Steps in `raising` may raise."""
        head = ["import torch", "import torch.nn.functional as F", ""]
        places = 'for dev, other, copy in (("cpu", "cpu", True), ("neuron", "neuron:1", False)):'
        body = [given.text for given in self.inputs]
        if self.compiled:
            arguments = "".join(f", v{given.number}" for given in self.inputs)
            places = 'for backend, dev, other, copy in ((None, "cpu", "cpu", True), ("neuron", "neuron", "neuron:1", False), '
            places += '("neuron", "cpu", "cpu", True)):'
            body += [
                "run = torch.compile(program, backend=backend) if backend else program",
                f"results = run(dev, other, copy{arguments})",
                f"print(*results{arguments}, sep='\\n')",
            ]
            return "\n".join([*head, self.function(), "", places, *(f"    {line}" for line in body)]) + "\n"
        bound = [given.number for given in self.inputs]
        for index, step in enumerate(self.steps):
            if index in raising:
                body += ["try:", *(f"    {line}" for line in step.text.splitlines())]
                body += ["except Exception as error:", "    print(type(error).__name__, error)"]
            else:
                body += step.text.splitlines()
                bound += step.targets
        body.append(f"print({', '.join(f'v{number}' for number in bound)}, sep='\\n')")
        return "\n".join([*head, places, *(f"    {line}" for line in body)]) + "\n"


def _literal(values: Any) -> str:
    """Nested lists as Python source, also with infinities and NaN."""
    if isinstance(values, (list, tuple)):
        return f"[{', '.join(_literal(value) for value in values)}]"
    if isinstance(values, float) and (values != values or values in (float("inf"), float("-inf"))):
        return f'float("{values}")'
    return repr(values)
