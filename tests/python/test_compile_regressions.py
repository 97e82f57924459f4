"""Faults that the conformance and fuzzing of compiled graphs found, each as the smallest program that shows it."""

import pytest
import torch
from compile_helpers import (
    DEVICE,
    compile_neuron,
    fresh_compiler,  # noqa: F401 (an autouse fixture)
    graph_count,
)


def test_views_that_leave_the_graph_together_count_versions_with_their_base() -> None:
    x = torch.arange(6.0, device=DEVICE).requires_grad_()
    first, second = compile_neuron(lambda t: t.chunk(2))(x)
    assert graph_count() == 1
    assert first._is_view() and second._is_view()
    assert first._base is x and second._base is x


def test_autograd_notices_a_write_to_a_view_from_a_compiled_graph() -> None:
    weight = torch.ones(6, device=DEVICE).requires_grad_()

    def function(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
        doubled = t * 2
        return doubled, *doubled.chunk(2)

    whole, first, _ = compile_neuron(function)(torch.ones(6, device=DEVICE))
    loss = (whole * weight).sum()  # saves `whole`
    first.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
