"""Finds a program that fails: Hypothesis generates and shrinks; compiled programs, which take long, are shrunk by leaving out steps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from .interpreter import execute
from .oracle import DifferenceError, Totals, check
from .program import Program, Step
from .strategy import programs

# Steps of a compiled program: tracing takes most of the time.
COMPILED_STEPS = 8


def search(
    count: int,
    number: int | None = None,
    *,
    compiled: bool = False,
    totals: Totals | None = None,
    before: Callable[[Program], None] | None = None,
    execute: Callable[[Step, dict[str, Any]], None] = execute,
) -> DifferenceError | None:
    """Run `count` programs of seed `number` (None: always the same ones); the difference found, shrunk, or None.

    `totals` counts; `before` sees every program before it runs; `execute` runs a step on the device.
    """
    totals = totals if totals is not None else Totals()

    def one(program: Program) -> None:
        if before is not None:
            before(program)
        check(program, execute, totals)

    strategy = programs(True, COMPILED_STEPS) if compiled else programs()
    phases = (Phase.generate,) if compiled else (Phase.generate, Phase.shrink)
    test = settings(
        max_examples=count,
        deadline=None,
        derandomize=number is None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )(given(strategy)(one))
    try:
        (test if number is None else seed(number)(test))()
    except DifferenceError as error:
        return reduce(error) if compiled else error
    return None


def reduce(error: DifferenceError) -> DifferenceError:
    """Leave out steps, the last first, as long as the rest still differs."""
    for step in reversed(error.program.steps):
        smaller = without(error.program, step)
        if smaller.steps:
            try:
                check(smaller)
            except DifferenceError as found:
                error = found
            except Exception:  # the rest is no program: a variable is missing
                continue
    return error


def without(program: Program, step: Step) -> Program:
    """The program without a step and what needs its results."""
    gone, steps = set(step.targets), []
    for other in program.steps:
        if other is step or gone.intersection(other.reads):
            gone.update(other.targets)
        else:
            steps.append(other)
    used = {number for other in steps for number in other.reads}
    return replace(program, steps=tuple(steps), inputs=tuple(given for given in program.inputs if given.number in used))
