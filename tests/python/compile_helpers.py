"""What the tests of `torch.compile(backend="neuron")` share."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.utils._pytree as pytree
from torch._dynamo.utils import counters

DEVICE = torch.device("neuron", 0)


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Start each test without compiled functions, counters and metrics. Importing this name turns it on for a test file."""
    from torch_neuronx import _C, reset_dynamo_metrics

    torch._dynamo.reset()
    counters.clear()
    reset_dynamo_metrics()
    _C.clear_compile_cache()
    yield
    torch._dynamo.reset()
    _C.clear_compile_cache()


def compile_neuron(function: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    """Compile for `neuron`; a graph break is an error unless the test allows it."""
    kwargs.setdefault("fullgraph", True)
    return torch.compile(function, backend="neuron", **kwargs)


def graph_count() -> int:
    """Graphs compiled since the test started."""
    return counters["neuron"]["compiled_graphs"]


def assert_same(actual: Any, expected: Any, ulps: float = 0) -> None:
    """The same structure, types, devices and bits; floats within `ulps` units of 1 where functions are approximated or sums reordered."""
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec
    for left, right in zip(actual_leaves, expected_leaves, strict=True):
        if isinstance(right, torch.Tensor):
            allowed = ulps * torch.finfo(right.dtype).eps if right.dtype.is_floating_point else 0
            torch.testing.assert_close(left, right, rtol=allowed, atol=allowed, equal_nan=True)
            assert left.stride() == right.stride()
        else:
            assert left == right


def check_against_eager(function: Callable[..., Any], *inputs: Any, graphs: int | None = 1, ulps: float = 0, **kwargs: Any) -> Any:
    """Compiled must give what eager gives on the same device, twice (compiling, then running), and leave its inputs in the same state."""

    def copies() -> Sequence[Any]:
        return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(memory_format=torch.preserve_format), inputs)

    eager_inputs = copies()
    expected = [function(*eager_inputs) for _ in range(2)]
    compiled = compile_neuron(function, **kwargs)
    compiled_inputs = copies()
    actual = [compiled(*compiled_inputs) for _ in range(2)]
    assert_same(actual, expected, ulps)
    assert_same(compiled_inputs, eager_inputs, ulps)
    if graphs is not None:
        assert graph_count() == graphs
    return actual[0]
