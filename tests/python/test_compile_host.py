"""Compiled functions of host tensors run on the device; what they return lies in memory as on the CPU, and so does what they read."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compile_helpers import compile_neuron, fresh_compiler, graph_count  # noqa: F401

Function = Callable[..., tuple[torch.Tensor, ...]]


def layout(results: tuple[torch.Tensor, ...]) -> list[tuple[object, ...]]:
    """Of each result: device, strides, offset, bytes of its storage, and the first result that shares it."""
    storages = [result.untyped_storage()._cdata for result in results]
    return [
        (str(result.device), result.stride(), result.storage_offset(), result.untyped_storage().nbytes(), storages.index(storage))
        for result, storage in zip(results, storages, strict=True)
    ]


def check(function: Function, make: Callable[[], tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    """Compiled equals eager: elements, layouts, and what is written to the inputs' whole storages. Gives the compiled results."""
    eager_inputs, compiled_inputs, graphs = make(), make(), graph_count()
    expected, actual = function(*eager_inputs), compile_neuron(function)(*compiled_inputs)
    assert graph_count() == graphs + 1
    assert layout(actual) == layout(expected)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)
    for left, right in zip(compiled_inputs, eager_inputs, strict=True):
        assert left.device.type == "cpu"
        assert left.untyped_storage().tolist() == right.untyped_storage().tolist()
    return actual


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def test_results_keep_strides_offsets_and_shared_memory() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        complex_ = torch.view_as_complex((x * 2).view(3, 2, 2))
        return (
            y,
            y[1:, ::2],
            y.t(),
            (x * 3)[:, 1],
            (x[0] + 1).expand(3, 4),
            (x.flatten() + 2).unfold(0, 4, 2),
            complex_.conj(),
            complex_.conj().imag,
            (x - 1).view(torch.int32)[2],
            y[:0],
            y,
        )

    check(function, lambda: (numbers(3, 4),))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "view", [lambda x: x.chunk(2), lambda x: x.t().split([1, 2]), lambda x: x.unbind(), lambda x: (x.view(-1), x * 2), lambda x: (x[0], x)]
)
def test_results_that_are_views_of_an_input_are_so_of_the_callers(view: Callable[..., Any], requires_grad: bool) -> None:
    """AOTAutograd leaves views by operators with several results to the backend."""
    x = torch.arange(6.0).view(2, 3).requires_grad_(requires_grad)
    expected, results = view(x), compile_neuron(view)(x)
    for left, right in zip(expected, results, strict=True):
        assert torch.equal(left, right) and left.stride() == right.stride()
        assert (left.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) == (
            right.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        )
    if requires_grad:
        results[0].sum().backward()
        gradient, x.grad = x.grad, None
        expected[0].sum().backward()
        assert torch.equal(gradient, x.grad)


def test_results_that_share_memory_count_versions_together() -> None:
    check(lambda x: (x.neg(), x.neg()[1]), lambda: (numbers(3, 4),))
    y, part = check(lambda x: ((y := x + 1), y[1]), lambda: (numbers(3, 4),))
    part.mul_(2)
    assert y._version == part._version == 1
    with torch.inference_mode():
        check(lambda x: ((y := x + 1), y[1]), lambda: (numbers(3, 4),))


@pytest.mark.parametrize("sizes, strides, offset", [((2, 2), (6, 1), 1), ((2, 3), (2, 1), 0), ((2, 3), (0, 1), None), ((2, 2), (7, 2), 3)])
@pytest.mark.parametrize("view", [lambda b: b, lambda b: b[1:], lambda b: b[:, ::2], lambda b: b.t(), lambda b: b[1].expand(3, 6)])
def test_as_strided_reads_what_lies_around_an_input(
    view: Callable[[torch.Tensor], torch.Tensor], sizes: tuple[int, ...], strides: tuple[int, ...], offset: int | None
) -> None:
    check(
        lambda x: (x.as_strided(sizes, strides, offset) * 2, x[:1].as_strided(sizes, strides, offset) + x.sum()),
        lambda: (view(numbers(4, 6)),),
    )


@pytest.mark.parametrize(
    "view",
    [
        lambda: numbers(4).expand(3, 4),
        lambda: numbers(3, 1).expand(3, 4),
        lambda: numbers(6).unfold(0, 3, 1),
        lambda: numbers(4, 6)[:, ::2],
        lambda: numbers(4, 6).t()[::2],
        lambda: numbers(2, 3, 4, 5).permute(3, 1, 0, 2)[:, :, :1].expand(-1, -1, 3, -1),
        lambda: numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),
        lambda: numbers(0, 3).expand(2, 0, 3),
    ],
)
def test_operators_see_the_strides_of_inputs(view: Callable[[], torch.Tensor]) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        swapped = x.transpose(0, -1)
        return x.clone(), x + 1, swapped.neg(), swapped.unfold(0, min(2, swapped.shape[0]), 1) + 0, torch.zeros_like(swapped), x.flatten()

    check(function, lambda: (view(),))


def test_views_of_one_storage_may_be_written() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        return y + 1, x.as_strided((2,), (1,), 0) + 0

    def make() -> tuple[torch.Tensor, ...]:
        base = numbers(4, 6)
        return base[:3], base[1:]

    check(function, make)
    check(lambda x: (x.mul_(2), x[0] + 1), lambda: (numbers(4, 6)[:, ::2],))


def test_a_row_of_a_large_storage_moves_alone() -> None:
    table = numbers(1000, 64)
    compiled = compile_neuron(lambda x: x * 2)
    compiled(table[3].expand(2, 64))
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    assert torch.equal(compiled(table[3].expand(2, 64)), (table[3] * 2).expand(2, 64))
    assert torch.neuron.max_memory_allocated() - before < 10_000


def test_gradients_of_host_tensors() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x @ w).t().relu().expand(2, -1, -1) * w[0, 0]).cumsum(0)[:, ::2].sin()

    results = []
    for run in (function, compile_neuron(function)):
        x, w = (numbers(3, 4) / 7).requires_grad_(), (numbers(4, 4).t() / 9).requires_grad_()
        result = run(x, w)
        result.sum().backward()
        results.append((result.detach(), x.grad, w.grad))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert actual.stride() == expected.stride()
