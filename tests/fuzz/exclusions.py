"""What is not compared, and why: differences that PyTorch itself makes between the CPU and any accelerator, or between eager and compiled."""

from collections.abc import Callable
from dataclasses import dataclass

from .program import Program, Step


@dataclass(frozen=True)
class Case:
    """One variable of a program (or its gradient) whose facts are compared."""

    program: Program
    step: Step | None  # that bound it; None for inputs
    is_grad: bool


@dataclass(frozen=True)
class Exclusion:
    """Facts (keys of `compare.facts`, `elements` and `sharing`) that are not compared where `applies` holds."""

    facts: frozenset[str]
    applies: Callable[[Case], bool]
    reason: str


def moves(program: Program) -> bool:
    """Whether something moves between places, which on the CPU is a forced copy to the same place."""
    return any("copy=copy" in step.code for step in program.steps)


EXCLUSIONS = (
    Exclusion(
        frozenset({"grad_fn"}),
        lambda case: case.step is not None and case.step.random,
        "PyTorch's dropout is native_dropout on accelerators and a multiplication with noise on the CPU",
    ),
    Exclusion(
        frozenset({"version"}),
        lambda case: case.is_grad and moves(case.program),
        "a gradient that passes through a move is a new tensor, which AccumulateGrad keeps; within one device it is expanded, and copied",
    ),
)

# Templates that `operators.py` does not have, or has in a weaker form, and why.
LEFT_OUT = {
    "a[...] = b for a 0-d b with a history": "PyTorch calls fill_ if b is on the CPU and copy_ if not, which record different autograd nodes",
    "Tensor.untyped_storage().resize_() below what tensors use": "reading them is a stray access, also on the CPU",
    "unstable sorts": "the order of equal elements is not specified",
}


def excluded(case: Case) -> set[str]:
    """The facts of this case that are not compared."""
    return {fact for exclusion in EXCLUSIONS if exclusion.applies(case) for fact in exclusion.facts}
