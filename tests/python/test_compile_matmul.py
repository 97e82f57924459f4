"""Matrix products of compiled programs with what is fused into them, against the same operators one by one in float64."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torch_neuronx
from torch_neuronx.neuron_dynamo_backend.explanation import GraphReport

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
# Of the largest number of the result: sums of up to 100 products, rounded once, and in the reference of 16 bits of inputs only.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}


def _values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


def _wide(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _placed(value: Any) -> Any:
    """Move a view with its strides."""
    if not isinstance(value, torch.Tensor):
        return value
    base = value if value._base is None else value._base
    return base.to("neuron").as_strided(value.size(), value.stride(), value.storage_offset())


def _check(function: Callable[..., Any], *inputs: Any) -> None:
    """No further from float64 than one rounding of the result allows, and like eager where that is not finite."""
    torch.compiler.reset()
    placed = [_placed(value) for value in inputs]
    eager = function(*placed)
    ours = torch.compile(function, backend="neuron", fullgraph=True)(*placed)
    reference = function(*(_wide(value) for value in inputs))
    for left, right, exact in zip(*(one if isinstance(one, tuple) else (one,) for one in (ours, eager, reference)), strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape and left.stride() == right.stride()
        finite = right.isfinite().cpu() & exact.isfinite()
        assert torch.equal(left.isnan(), right.isnan())
        scale = exact[finite].abs().max().clamp(min=1e-9) if finite.any() else 1.0
        error = (left.cpu().double() - exact)[finite].abs().max() / scale if finite.any() else torch.zeros(())
        assert error <= TOLERANCE[left.dtype], error


def _graph(function: Callable[..., Any], *inputs: Any) -> GraphReport:
    torch.compiler.reset()
    found = torch_neuronx.explain(function, *(_placed(value) for value in inputs))
    assert found.error is None
    return found.graphs[0]


def _instructions(function: Callable[..., Any], *inputs: Any) -> dict[str, int]:
    """How many instructions of each kind have work."""
    graph = _graph(function, *inputs)
    return dict(graph.fused) | {call.opcode: call.count for call in graph.calls}


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_layer_is_one_instruction(name: str, dtype: torch.dtype) -> None:
    act = ACTIVATIONS[name]

    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return act(F.linear(x, w, b)) + h

    inputs = [_values(2, 5, 33, dtype=dtype), _values(17, 33, dtype=dtype, seed=1) / 6, _values(17, dtype=dtype, seed=2), _values(2, 5, 17, dtype=dtype, seed=3)]
    _check(layer, *inputs)
    assert _instructions(layer, *inputs) == {"neuron::matmul": 1}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows", [1, 3, 16, 40])
def test_gated_pairs(rows: int, dtype: torch.dtype) -> None:
    def gated(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.linear(x, v) * F.silu(F.linear(x, w))

    inputs = [_values(rows, 50, dtype=dtype), _values(70, 50, dtype=dtype, seed=1) / 7, _values(70, 50, dtype=dtype, seed=2) / 7]
    _check(gated, *inputs)
    expected = {"neuron::matmul": 1} if rows >= 16 else {"neuron::matmul": 2, "neuron::fused": 1}
    assert _instructions(gated, *inputs) == expected


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("picks", [[1, 3], [2, 2], [-1, 0], []])
def test_chosen_experts_are_not_copied(picks: list[int], dtype: torch.dtype) -> None:
    def experts(w: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.bmm(w[i], x.unsqueeze(-1)).squeeze(-1), torch.bmm(x.unsqueeze(1), w.transpose(1, 2)[i])

    inputs = [_values(4, 20, 30, dtype=dtype) / 5, torch.tensor(picks, dtype=torch.int64), _values(len(picks), 30, dtype=dtype, seed=1)]
    _check(experts, *inputs)
    assert "aten::index.Tensor" not in _instructions(experts, *inputs)


def test_experts_that_are_not_there() -> None:
    compiled = torch.compile(lambda w, i, x: torch.bmm(w[i], x), backend="neuron")
    w, x = torch.ones(4, 3, 5, device="neuron"), torch.ones(2, 5, 1, device="neuron")
    for wrong in (4, -5):
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for dimension 0 with size 4"):
            compiled(w, torch.tensor([0, wrong], device="neuron"), x)
    assert torch.equal(compiled(w, torch.tensor([0, -4], device="neuron"), x).cpu(), torch.full((2, 3, 1), 5.0))


@pytest.mark.parametrize("shape", [(1, 6), (6,), (4, 1), (1, 1), (), (4, 6)])
def test_what_is_added_is_broadcast(shape: tuple[int, ...]) -> None:
    b = _values(*shape, seed=2)
    _check(lambda x, w, b: F.relu(x @ w + b) + b, _values(4, 7), _values(7, 6, seed=1), b)


def test_rows_that_repeat_in_the_batch_are_added_apart() -> None:
    inputs = [_values(3, 4, 7), _values(7, 6, seed=1), _values(4, 6, seed=2)]
    _check(lambda x, w, b: x @ w + b, *inputs)


def test_other_layouts() -> None:
    x, w = _values(9, 5).t(), _values(12, 18, seed=1)[::2, ::2]
    for left, right, added in itertools.product((x, x.contiguous()), (w.t(), _values(9, 6, seed=3)), (_values(6, 5, seed=2).t(), _values(10, 6)[::2])):
        _check(lambda x, w, b: F.gelu(x @ w) + b, left, right, added)
    _check(lambda x, w, b: (x @ w).t() + b, _values(5, 9), _values(9, 6), _values(6, 5))
    _check(lambda x, w, b: torch.baddbmm(b, x, w, beta=0.5, alpha=2), _values(2, 5, 9).transpose(0, 1).transpose(0, 1), _values(9, 2, 6).transpose(0, 1), _values(5, 6))
    _check(lambda x, w: x.expand(4, 9) @ w.expand(9, 6), _values(1, 9), _values(9, 1))


def test_results_that_others_read() -> None:
    def several(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.linear(x, w, b)
        z = F.gelu(y)
        return y, z, z + x, (y + x).sum(0)

    _check(several, _values(4, 8), _values(8, 8, seed=1), _values(8, seed=2))


def test_the_result_is_memory_of_its_own() -> None:
    h = torch.ones(4, 6, device="neuron")
    x, w = torch.ones(4, 3, device="neuron"), torch.ones(3, 6, device="neuron")

    def step(h: torch.Tensor) -> torch.Tensor:
        return x @ w + h

    compiled = torch.compile(step, backend="neuron")
    first = compiled(h)
    first.zero_()
    assert torch.equal(h.cpu(), torch.ones(4, 6))
    assert torch.equal(compiled(h).cpu(), torch.full((4, 6), 4.0))


def test_inputs_that_change_in_between() -> None:
    def updated(x: torch.Tensor, w: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        y = x @ w
        h.add_(1)
        w.mul_(2)
        return F.relu(y) + h

    inputs = [_values(4, 3), _values(3, 6, seed=1), _values(4, 6, seed=2)]
    expected = updated(*(value.clone() for value in inputs))
    placed = [value.to("neuron") for value in inputs]
    actual = torch.compile(updated, backend="neuron", fullgraph=True)(*placed)
    torch.testing.assert_close(actual.cpu(), expected)
    torch.testing.assert_close(placed[1].cpu(), inputs[1] * 2)
    torch.testing.assert_close(placed[2].cpu(), inputs[2] + 1)


def test_not_numbers_and_infinity() -> None:
    x = _values(4, 8)
    x[0, 0], x[1, 1], x[2, 2] = torch.nan, torch.inf, -torch.inf
    w = _values(8, 6, seed=1).abs() + 0.1
    _check(lambda x, w, b: F.relu(torch.addmm(b, x, w)), x, w, _values(6))
    # silu(-inf) is 0 here, its limit, and NaN in eager PyTorch.
    _check(lambda x, w, b: F.silu(torch.addmm(b, x, w)), x[:2], w, _values(6))
    assert torch.compile(lambda x, w: F.silu(x @ w), backend="neuron")(x[2:3].to("neuron"), w.to("neuron")).eq(0).all()
    # An addend times nothing is not read.
    bad = torch.full((6,), torch.nan)
    _check(lambda x, w, b: F.relu(torch.addmm(b, x, w, beta=0)), _values(4, 8), w, bad)


def test_zero_sizes() -> None:
    for m, k, n in ((0, 3, 4), (2, 0, 4), (2, 3, 0)):
        _check(lambda x, w, b: F.gelu(F.linear(x, w, b)) + b, _values(m, k), _values(n, k), _values(n))
        _check(lambda x, w: F.silu(x @ w) * (x @ w), _values(m, k), _values(k, n))


def test_types_that_do_not_mix_stay_apart() -> None:
    half, full = _values(4, 8, dtype=torch.bfloat16), _values(4, 4)
    w = _values(8, 4, dtype=torch.bfloat16, seed=1)
    mixed = torch.compile(lambda x, w, h: x @ w + h, backend="neuron")(half.to("neuron"), w.to("neuron"), full.to("neuron"))
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed.cpu(), (half @ w) + full, rtol=2**-7, atol=2**-6)
    assert _instructions(lambda x, w, h: x @ w + h, half, w, full) == {"neuron::matmul": 1, "neuron::fused": 1}
    for dtype in (torch.float64, torch.complex64, torch.int64):
        x = torch.ones(3, 3, device="neuron", dtype=dtype)
        assert torch.equal(torch.compile(lambda x: x @ x + x, backend="neuron")(x).cpu(), torch.full((3, 3), 4, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training(dtype: torch.dtype) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = F.gelu(F.linear(x, w, b)) + x
        return (F.silu(y @ v) * (y @ w)).float().square().mean()

    inputs = [_values(20, 16, dtype=dtype), *(_values(16, 16, dtype=dtype, seed=seed) / 4 for seed in (1, 2)), _values(16, dtype=dtype, seed=3)]

    def gradients(function: Callable[..., torch.Tensor], values: list[torch.Tensor]) -> list[torch.Tensor]:
        leaves = [value.clone().requires_grad_() for value in values]
        function(*leaves).backward()
        return [leaf.grad.cpu().double() for leaf in leaves if leaf.grad is not None]

    exact = gradients(loss, [value.double() for value in inputs])
    eager = gradients(loss, inputs)
    torch.compiler.reset()
    ours = gradients(torch.compile(loss, backend="neuron", fullgraph=True), [value.to("neuron") for value in inputs])
    for left, right, middle in zip(ours, eager, exact, strict=True):
        allowed = max(1.5 * (right - middle).norm(), 1e-5 * middle.norm())
        assert (left - middle).norm() <= allowed


def test_random_chains() -> None:
    """Any chain of layers in any order gives what the operators give one by one."""
    rng = random.Random(7)
    for seed in range(25):
        batch, rows, width = rng.choice([(1,), (2, 3), (1, 1), (17,)]), rng.choice([8, 24, 33]), rng.choice([8, 40])
        steps = [rng.choice(["linear", "bias", "relu", "silu", "gelu", "residual", "gate", "scale", "twice"]) for _ in range(6)]
        w, v, b = _values(rows, rows, seed=seed) / rows**0.5, _values(rows, rows, seed=seed + 1) / rows**0.5, _values(rows, seed=width)

        def chain(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor, steps: list[str] = steps) -> torch.Tensor:
            first = x
            for step in steps:
                match step:
                    case "linear":
                        x = F.linear(x, w)
                    case "bias":
                        x = F.linear(x, v, b)
                    case "residual":
                        x = x + first
                    case "gate":
                        x = F.silu(F.linear(x, w)) * F.linear(x, v)
                    case "scale":
                        x = x * 0.5
                    case "twice":
                        x = F.linear(x, w) + F.linear(x, v)
                    case _:
                        x = ACTIVATIONS[step](x)
            return x

        inputs = (_values(*batch, rows, seed=seed + 2), w, v, b)
        torch.compiler.reset()
        ours = torch.compile(chain, backend="neuron", fullgraph=True)(*(value.to("neuron") for value in inputs))
        torch.testing.assert_close(ours.cpu(), chain(*inputs), rtol=1e-4, atol=1e-4)


def test_threads_do_not_change_the_bits() -> None:
    inputs = [value.to("neuron") for value in (_values(3, 256), _values(512, 256, seed=1), _values(512, seed=2))]
    compiled = torch.compile(lambda x, w, b: F.gelu(F.linear(x, w, b)), backend="neuron")
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(compiled(*inputs).cpu())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_another_layout_than_the_trace_promised() -> None:
    """A custom operator may return what its fake did not say."""

    @torch.library.custom_op("test_matmul::turned", mutates_args=())
    def turned(x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous().t()

    @turned.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    _check(lambda x, w: F.relu(turned(x) @ w), _values(5, 7), _values(7, 6))


def test_times_are_reported() -> None:
    graph = _graph(lambda x, w: F.relu(x @ w), _values(64, 64), _values(64, 64))
    (time,) = [time for time in graph.times() if time.opcode == "neuron::matmul"]
    assert time.count == 1 and time.flops == 2 * 64**3 and time.bytes == 3 * 64 * 64 * 4 and time.seconds > 0
    assert "GB/s" in str(torch_neuronx.explain(lambda x, w: F.relu(x @ w), torch.ones(4, 4, device="neuron"), torch.ones(4, 4, device="neuron")))
