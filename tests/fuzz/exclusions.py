"""What is not compared, and why: differences that PyTorch itself makes between the CPU and any accelerator."""

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


def has(program: Program, *parts: str) -> bool:
    """Whether some step contains all these parts."""
    return any(all(part in step.code for part in parts) for step in program.steps)


def moves(program: Program) -> bool:
    """Whether something moves between places, which on the CPU is a forced copy to the same place."""
    return has(program, "copy=copy")


EXCLUSIONS = (
    Exclusion(
        frozenset({"grad_fn"}),
        lambda case: case.step is not None and case.step.random,
        "PyTorch's dropout is native_dropout on accelerators and a multiplication with noise on the CPU",
    ),
    Exclusion(
        frozenset({"grad_fn"}),
        lambda case: has(case.program, "] = "),
        "a[...] = number is fill_ on the CPU, and elsewhere copy_ of a tensor that PyTorch makes of the number",
    ),
    Exclusion(
        frozenset({"version"}),
        lambda case: has(case.program, "inference_mode"),
        "with inference tensors, operators that a CPU kernel calls run above autograd, and count versions of the result",
    ),
    Exclusion(
        frozenset({"version"}),
        lambda case: has(case.program, "matmul", "out="),
        "matmul is composite; its out= is resized through the dispatcher, which counts a version, except on the CPU and CUDA",
    ),
    Exclusion(
        frozenset({"version"}),
        lambda case: (case.is_grad or (case.step is not None and "grad" in case.step.code)) and moves(case.program),
        "a gradient that passes through a move is a new tensor, which AccumulateGrad keeps; within one device it is expanded, and copied",
    ),
)

# Templates that `operators.py` does not have, or has in a weaker form, and why.
LEFT_OUT = {
    "a[...] = b for a 0-d b with a history": "fill_ if b is on the CPU, copy_ if not: different autograd nodes",
    "Tensor.untyped_storage().resize_() below what tensors use": "reading them is a stray access, also on the CPU",
    "Tensor.register_hook on views": "crashes PyTorch, also on the CPU, when the base was written to since (also in inference mode)",
    "median and kthvalue over an expanded dimension": "the CPU kernels write past what they copied and return garbage",
    "F.one_hot with classes out of range": "PyTorch checks them with this message on the CPU only",
    "matmul and addmm_ into memory of their operands": "not detected, and what the BLAS gives depends on addresses",
    "histc of integers": "the device has it, as transformers expects of accelerators; the CPU raises",
    "unstable sorts": "the order of equal elements is not specified",
}


def excluded(case: Case) -> set[str]:
    """The facts of this case that are not compared."""
    return {fact for exclusion in EXCLUSIONS if exclusion.applies(case) for fact in exclusion.facts}
