"""Static shapes: every new shape is compiled once, counted and reported; dynamic shapes are refused."""

import logging
from typing import Any

import pytest
import torch
import torch._dynamo
from compile_helpers import (
    DEVICE,
    assert_same,
    compile_neuron,
    fresh_compiler,  # noqa: F401 (an autouse fixture)
    graph_count,
)
from torch._dynamo.utils import counters


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(*sizes, device=DEVICE)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * x.shape[0]).view(x.shape[0] * 2, -1).sum(1)


def test_each_shape_is_compiled_once() -> None:
    compiled = compile_neuron(scaled)
    for size in (2, 3, 5, 3, 2, 5, 8):
        assert_same(compiled(ones(size, 4)), scaled(ones(size, 4)))
    assert graph_count() == 4
    assert counters["neuron"]["recompilations"] == 3


def test_a_recompilation_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    compiled = compile_neuron(scaled)
    with caplog.at_level(logging.WARNING, logger="torch_neuronx.compile"):
        compiled(ones(2, 4))
        assert caplog.messages == []
        compiled(ones(3, 4))
    (message,) = caplog.messages
    assert "in scaled" in message and "test_compile_shapes.py" in message
    assert "size mismatch at index 0. expected 2, actual 3" in message


def test_numbers_are_part_of_the_graph() -> None:
    def function(x: torch.Tensor, count: int, factor: float) -> torch.Tensor:
        return x.repeat(count) * factor

    compiled = compile_neuron(function)
    for count, factor in ((2, 1.5), (3, 1.5), (4, 2.5), (5, 3.5)):
        assert_same(compiled(ones(3), count, factor), function(ones(3), count, factor))


@pytest.mark.parametrize("form", ["causal", "plain", "mask", "grouped"])
def test_attention_of_a_second_shape(form: str) -> None:
    # Dynamo traces the second shape with symbolic sizes, which the choice of the attention kernel must take.
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=form == "causal", enable_gqa=form == "grouped")

    compiled = compile_neuron(attend)
    for batch, length in ((2, 4), (3, 4), (3, 7), (1, 1), (2, 4)):
        q = torch.randn(batch, 4, length, 8, device=DEVICE)
        k, v = torch.randn(2, batch, 2 if form == "grouped" else 4, length, 8, device=DEVICE)
        mask = torch.randn(batch, 1, length, length, device=DEVICE) if form == "mask" else None
        assert_same(compiled(q, k, v, mask), attend(q, k, v, mask))
    assert graph_count() == 4


def test_beyond_the_limit_it_runs_eagerly() -> None:
    compiled = compile_neuron(scaled, fullgraph=False)
    for size in range(2, 14):
        assert_same(compiled(ones(size, 4)), scaled(ones(size, 4)))
    assert graph_count() == torch._dynamo.config.recompile_limit


def test_training_recompiles_for_a_new_shape() -> None:
    weight = torch.ones(4, 4, device=DEVICE, requires_grad=True)
    compiled = compile_neuron(lambda x, w: (x @ w).relu().sum())
    for size in (2, 3, 4, 3):
        weight.grad = None
        compiled(ones(size, 4), weight).backward()
        assert_same(weight.grad, torch.full((4, 4), float(size), device=DEVICE))
    assert graph_count() == 6


@pytest.mark.parametrize("dynamic", [None, False])
def test_dynamic_unset_or_false(dynamic: bool | None) -> None:
    compiled = compile_neuron(scaled, dynamic=dynamic)
    for size in (2, 3, 4):
        assert_same(compiled(ones(size, 4)), scaled(ones(size, 4)))
    assert graph_count() == 3


def expect_refusal(call: Any, what: str) -> None:
    with pytest.raises(Exception, match="NCC_EMOD025 Dynamic shape is not supported") as caught:
        call()
    assert what in str(caught.value)
    assert "dynamic=False" in str(caught.value)


def test_dynamic_true_is_refused() -> None:
    expect_refusal(lambda: compile_neuron(scaled, dynamic=True)(ones(3, 4)), "dynamic=True")


def test_the_dynamic_option_is_refused() -> None:
    expect_refusal(lambda: compile_neuron(scaled, options={"dynamic": True})(ones(3, 4)), "options={'dynamic': True}")


def test_a_marked_dimension_is_refused() -> None:
    x = ones(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    expect_refusal(lambda: compile_neuron(scaled)(x), "dimension 0 of input")


def test_fallback_does_not_hide_a_refusal() -> None:
    expect_refusal(lambda: compile_neuron(scaled, dynamic=True, options={"fallback_execution": True})(ones(3, 4)), "dynamic=True")


def test_shapes_that_depend_on_data_break_the_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).nonzero() + 1

    x = torch.tensor([0.0, 1.0, 2.0], device=DEVICE)
    # Not the strides: that of the dimension of size 1 is as the trace promises, where eager keeps the one of `nonzero`.
    assert torch.equal(compile_neuron(function, fullgraph=False)(x), function(x))


def test_shapes_that_depend_on_data_are_refused_when_captured() -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        expect_refusal(lambda: compile_neuron(lambda x: x.nonzero() * 2)(torch.tensor([0.0, 1.0], device=DEVICE)), "depends on data")


def test_fail_on_recompile_stance() -> None:
    compiled = compile_neuron(scaled)
    compiled(ones(2, 4))
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="recompile"):
        compiled(ones(3, 4))
    assert graph_count() == 1
