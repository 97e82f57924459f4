"""A slice of the fuzzing, always the same programs; `python -m tests.fuzz` runs others. And the fuzzer itself: it finds planted faults."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from .builder import build
from .compare import facts, normal_message
from .interpreter import CPU, NEURON, execute, run
from .operators import OPERATORS
from .oracle import check
from .program import Input, Program, Step
from .search import search, without

Names = dict[str, Any]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def test_eager_programs_agree():
    error = search(1000)
    assert error is None, str(error)


def test_compiled_programs_agree():
    error = search(25, compiled=True)
    assert error is None, str(error)


# Faulty ways to run a step on the device: what goes wrong afterwards, in names, in values, or in errors.


def view_becomes_copy(step: Step, names: Names) -> None:
    execute(step, names)
    if ".transpose(" in step.code and step.targets:
        names[f"v{step.targets[0]}"] = names[f"v{step.targets[0]}"].clone()


def wrong_value(step: Step, names: Names) -> None:
    execute(step, names)
    if "softmax(" in step.code and step.targets:
        with torch.no_grad():
            names[f"v{step.targets[0]}"].view(-1)[-1:].add_(0.001)


def missing_overlap_check(step: Step, names: Names) -> None:
    try:
        execute(step, names)
    except RuntimeError as error:
        if "more than one element of the written-to tensor" not in str(error):
            raise


def gradient_counted_twice(step: Step, names: Names) -> None:
    execute(step, names)
    if "retain_graph=True" in step.code and ".backward(" in step.code:
        execute(step, names)


def wrong_stride(step: Step, names: Names) -> None:
    execute(step, names)
    if ".clone()" in step.code and step.targets:
        name = f"v{step.targets[0]}"
        names[name] = names[name].contiguous()


FAULTS = (view_becomes_copy, wrong_value, missing_overlap_check, gradient_counted_twice, wrong_stride)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_fault_is_found_and_shrinks(fault: Callable[[Step, Names], None]):
    error = search(3000, execute=fault)
    assert error is not None, "not found"
    assert len(error.program.steps) <= 5, str(error)
    assert str(error).count("\n") <= 30
    # The message is a script; the device itself has no such fault, so that it says the same for both devices.
    printed: list[str] = []
    exec(
        compile(str(error), "<script>", "exec"),
        {"print": lambda *values, sep="": printed.append(normal_message(re.sub(r"\s+", "", repr(values))))},
    )
    first, second = printed[: len(printed) // 2], printed[len(printed) // 2 :]
    assert first == second


def test_planted_fault_in_a_compiled_program_shrinks():
    program = Program(
        inputs=(Input(0, torch.float32, (2,), [1.0, 2.0]),),
        steps=(Step("v0 + 1", (1,)), Step("v1 * 2", (2,)), Step("v0.neg_()"), Step("v2.sum()", (3,))),
        compiled=True,
    )
    smaller = without(program, program.steps[1])
    assert [step.text for step in smaller.steps] == ["v1 = v0 + 1", "v0.neg_()"]
    assert [given.number for given in smaller.inputs] == [0]
    check(program)
    check(smaller)


def test_every_template_gives_programs_that_run():
    chooser, first = random.Random(0), {operator.template: place for place, operator in reversed(list(enumerate(OPERATORS, 1)))}
    needs_more = re.compile(
        r"graph|leaf|\.t\(\)\)$|expand\(\{s:expanded a\}\)\.add_|scatter_add_|retain_grad"
    )  # a history, or raises on purpose
    dead = []
    for template, place in first.items():
        tries = (build([(place, chooser.randbytes(20))]) for _ in range(20))
        if not needs_more.search(template) and all(run(program, CPU).errors for program in tries):
            dead.append(template)
    assert not dead


def test_facts_tell_tensors_apart():
    plain = torch.ones(2, 3)
    others = [plain.double(), plain.reshape(3, 2), torch.ones(3, 2).t(), torch.ones(9)[3:].view(2, 3), plain.clone().requires_grad_()]
    others += [plain.clone().add_(0), plain * 1j, plain[:, :]]
    for other in others:
        assert facts(other, autograd=True) != facts(plain, autograd=True)
    assert facts(plain.clone(), autograd=True) == facts(plain, autograd=True)


def test_messages_are_compared_without_the_device():
    assert normal_message("on neuron:0 and cpu") == normal_message("on cpu and cpu")
    assert normal_message("[neuronFloatType [2]]") == normal_message("[torch.FloatTensor [2]]") == normal_message("[CPUFloatType [2]]")
    assert normal_message("size 2") != normal_message("size 3")


def test_program_prints_as_a_script_that_runs():
    program = Program(
        (Input(0, torch.float32, (2,), [1.0, float("nan")]),), (Step("v0.chunk(2)", (1, 2), unpack=True), Step("v1.add_('x')"))
    )
    assert "v1, v2 = v0.chunk(2)" in program.snippet({1})
    printed: list[Any] = []
    exec(compile(program.snippet({1}), "<script>", "exec"), {"print": lambda *values, sep="": printed.append(values)})
    assert len(printed) == 4  # an error and the variables, on two devices
    outcome = run(program, NEURON)
    assert outcome.errors.keys() == {1}
    assert outcome.values.keys() == {0, 1, 2}
