"""Fused regions of compiled programs against the same operators one by one on the CPU: values, rounding points, strides and memory."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torch_neuronx import neuron_dynamo_backend  # noqa: F401

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def _close(actual: torch.Tensor, expected: torch.Tensor, ulps: float) -> None:
    """Compare with an allowance of `ulps` units in the last place (of the largest neighbour, for sums that cancel)."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    actual = actual.cpu()
    if not expected.dtype.is_floating_point:
        assert torch.equal(actual, expected)
        return
    if ulps == 0:
        assert torch.equal(actual.isnan(), expected.isnan())
        different = (actual != expected) & ~expected.isnan()
        assert not different.any(), (actual[different][:5], expected[different][:5])
        return
    epsilon = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(actual, expected, rtol=ulps * epsilon, atol=ulps * epsilon, equal_nan=True)


def _check(function: Callable[..., Any], *inputs: torch.Tensor, ulps: float = 0, strides: bool = True) -> None:
    """Run the function eagerly on the CPU and compiled on the device."""
    expected = function(*(value.clone() for value in inputs))
    torch.compiler.reset()
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    actual = compiled(*(value.clone().to("neuron") for value in inputs))
    if isinstance(expected, torch.Tensor):
        expected, actual = (expected,), (actual,)
    for theirs, ours in zip(expected, actual, strict=True):
        assert ours.device.type == "neuron"
        if strides:
            assert ours.stride() == theirs.stride()
        _close(ours, theirs, ulps)


def _values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * 2).to(dtype)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(x.dtype)


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


# Element by element the same arithmetic: equal to the last bit.
EXACT: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda x, y: x + y,
    "chain": lambda x, y: (x + y) * x - y / (x * x + 1),
    "multiply and add": lambda x, y: x * y + x,
    "add of a number": lambda x, y: x + 1e-3,
    "product with a number": lambda x, y: x * 0.1 + y * 3,
    "division by a number": lambda x, y: x / 3.0,
    "number first": lambda x, y: 2.5 - x * 1.5 + 1 / (x.abs() + 1),
    "subtraction": lambda x, y: x - y - 0.3,
    "scaled addition": lambda x, y: torch.add(x, y, alpha=2),
    "square and cube": lambda x, y: (x**2, x**3, x**1, x**-1),
    "reciprocal": lambda x, y: x + y.reciprocal(),
    "comparison": lambda x, y: (x > y, x <= 0.1, (x == y), x.ne(0)),
    "selection": lambda x, y: torch.where(x > y, x * 2, y),
    "mask": lambda x, y: x.masked_fill(y > 0, float("-inf")),
    "clamp": lambda x, y: x.clamp(-0.5, 0.7).clamp(min=-0.3) + x.clamp(max=0.1),
    "extrema": lambda x, y: torch.maximum(x, y) - torch.minimum(x, y),
    "logic": lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), ~(x > 0), torch.logical_xor(x > 0, y > 0)),
    "rounding": lambda x, y: (x.floor(), x.ceil(), x.round(), x.trunc(), x.sign(), x.neg(), x.abs()),
    "relu": lambda x, y: F.relu(x) + F.leaky_relu(y, 0.1),
    "casts": lambda x, y: (x.to(torch.float32) * y.to(torch.float32)).to(x.dtype) + x.to(torch.int32).to(x.dtype),
    "to bool and integers": lambda x, y: (x.to(torch.bool), x.to(torch.int64) + 3, x.to(torch.int32) * 2, x.to(torch.int8)),
    "maximum of rows": lambda x, y: x - x.amax(-1, keepdim=True) + y.amin(-1, keepdim=True),
    "not a number": lambda x, y: torch.where(torch.isnan(x), y, x),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", list(EXACT))
def test_same_arithmetic_gives_the_same_bits(name: str, dtype: torch.dtype) -> None:
    _check(EXACT[name], _values(3, 5, 40, dtype=dtype), _values(3, 5, 40, dtype=dtype, seed=1))


# Other approximations of the same functions.
CLOSE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "exp": lambda x, y: torch.exp(x),
    "roots": lambda x, y: (x.abs().sqrt(), x.abs() ** 0.5),  # the CPU's own is not rounded correctly in float32
    "rsqrt": lambda x, y: ((x.abs() + 1).rsqrt(), (x.abs() + 1) ** -0.5),
    "log": lambda x, y: torch.log(x.abs() + 0.1),
    "tanh": lambda x, y: torch.tanh(x) * y,
    "sigmoid": lambda x, y: torch.sigmoid(x),
    "silu": lambda x, y: F.silu(x) * y,
    "gelu": lambda x, y: F.gelu(x),
    "gelu tanh": lambda x, y: F.gelu(x, approximate="tanh"),
    "erf": lambda x, y: torch.erf(x),
    "sin cos": lambda x, y: (torch.sin(x * 50), torch.cos(x)),
    "power": lambda x, y: (x.abs() + 0.1) ** 1.7,
    "exp2 log2": lambda x, y: torch.exp2(x) + torch.log2(x.abs() + 1),
    "expm1 log1p": lambda x, y: torch.expm1(x * 0.1) + torch.log1p(x.abs()),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", list(CLOSE))
def test_functions_are_within_two_units(name: str, dtype: torch.dtype) -> None:
    _check(CLOSE[name], _values(7, 33, dtype=dtype), _values(7, 33, dtype=dtype, seed=1), ulps=8 if dtype == torch.float32 else 2)


ROWS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "rms norm": _rms_norm,
    "layer norm": lambda x, w: F.layer_norm(x, (x.shape[-1],), w, w),
    "layer norm without weights": lambda x, w: F.layer_norm(x + 1, (x.shape[-1],)),
    "softmax": lambda x, w: torch.softmax(x * w, -1),
    "log softmax": lambda x, w: torch.log_softmax(x, -1),
    "softmax in float32": lambda x, w: torch.softmax(x, -1, dtype=torch.float32).to(x.dtype),
    "sum and mean": lambda x, w: (x.sum(-1), (x * w).mean(-1, keepdim=True)),
    "variance": lambda x, w: (x - x.mean(-1, keepdim=True)).pow(2).mean(-1),
    "rows twice": lambda x, w: _rms_norm(torch.softmax(x, -1), w),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [2, 24, 1030])
@pytest.mark.parametrize("name", list(ROWS))
def test_rows(name: str, size: int, dtype: torch.dtype) -> None:
    _check(ROWS[name], _values(2, 3, size, dtype=dtype), _values(size, dtype=dtype, seed=1), ulps=16 if dtype == torch.float32 else 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rope(dtype: torch.dtype) -> None:
    def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin

    _check(
        rope,
        _values(2, 5, 4, 16, dtype=dtype),
        _values(2, 5, 2, 16, dtype=dtype, seed=1),
        _values(1, 5, 16, dtype=dtype, seed=2),
        _values(1, 5, 16, dtype=dtype, seed=3),
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rope_of_half_the_head(dtype: torch.dtype) -> None:
    def partial(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        turned, kept = x[..., :8], x[..., 8:]
        return torch.cat((turned * cos + _rotate_half(turned) * sin, kept), dim=-1)

    _check(partial, _values(2, 3, 5, 16, dtype=dtype), _values(5, 8, dtype=dtype, seed=1), _values(5, 8, dtype=dtype, seed=2))


LAYOUTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "broadcast": (lambda x, y: x + y * 2, (_values(4, 1, 6), _values(5, 1))),
    "transposed": (lambda x, y: torch.relu(x.t()) + y, (_values(6, 4), _values(4, 6))),
    "transposed result": (lambda x: x.transpose(0, 1) * 2, (_values(6, 4),)),
    "expanded": (lambda x: torch.relu(x.expand(5, 4, 6)) + 1, (_values(4, 1),)),
    "strided slice": (lambda x: x[1::2, ::3] * 2 + 1, (_values(9, 20),)),
    "slice of a result": (lambda x: (x * 2)[:, 3:].relu() + 1, (_values(9, 20),)),
    "both halves": (lambda x: torch.chunk(x.relu(), 2, -1)[0] * torch.chunk(x.relu(), 2, -1)[1], (_values(9, 20),)),
    "select": (lambda x: x[2] * x[-1].neg(), (_values(9, 20),)),
    "no dimensions": (lambda x, y: (x * 2 + 1) * y, (torch.tensor(3.0), torch.tensor(2.0))),
    "no dimensions with some": (lambda x, y: x * y, (torch.tensor(3.0), _values(4))),
    "no elements": (lambda x: ((x * 2).relu(), x.sum(-1)), (_values(0, 4),)),
    "rows of no elements": (lambda x: (x * 2).sum(-1), (_values(4, 0),)),
    "one column": (lambda x: (x - x.mean(-1, keepdim=True)).softmax(-1), (_values(4, 1),)),
    "permuted": (lambda x: (x.permute(2, 0, 1) + 1).sum(-1), (_values(3, 4, 5),)),
    "channels last": (lambda x: (x * 2 + 1).relu(), (_values(2, 3, 4, 5).to(memory_format=torch.channels_last),)),
    "reshaped between": (lambda x: (x.relu().reshape(4, 15) + 1).sum(-1), (_values(4, 3, 5),)),
    "counted": (
        lambda x: torch.where(torch.arange(6, device=x.device) > 2, x, 0.0) + torch.arange(1, 7, device=x.device),
        (_values(4, 6),),
    ),
    "causal mask": (
        lambda x: x.masked_fill(torch.arange(6, device=x.device)[None, :] > torch.arange(6, device=x.device)[:, None], float("-inf")),
        (_values(6, 6),),
    ),
    "own transpose": (lambda x: x.exp().relu() + x.exp().relu().t(), (torch.zeros(4, 4),)),
}


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_layouts(name: str) -> None:
    function, inputs = LAYOUTS[name]
    _check(function, *inputs, ulps=8)


@pytest.mark.parametrize("name", ["expanded", "transposed", "strided"])
def test_inputs_with_odd_strides(name: str) -> None:
    base = _values(6, 8)
    odd = {"expanded": base[:, :1].expand(6, 8), "transposed": base.t().contiguous().t(), "strided": _values(12, 16)[::2, ::2]}[name]
    device = {
        "expanded": base[:, :1].to("neuron").expand(6, 8),
        "transposed": base.t().contiguous().to("neuron").t(),
        "strided": _values(12, 16).to("neuron")[::2, ::2],
    }[name]
    torch.compiler.reset()
    compiled = torch.compile(lambda x: (x * 2 + 1, x.sum(-1)), backend="neuron", fullgraph=True)
    for ours, theirs in zip(compiled(device), (odd * 2 + 1, odd.sum(-1)), strict=True):
        _close(ours, theirs, 4)


MIXES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "half and float": (lambda x, y: x * y + x, (_values(4, 6, dtype=torch.bfloat16), _values(4, 6))),
    "two halves": (lambda x, y: x * y, (_values(4, 6, dtype=torch.bfloat16), _values(4, 6, dtype=torch.float16))),
    "double": (lambda x, y: (x + y).exp().sum(-1), (_values(4, 6, dtype=torch.float64), _values(4, 6))),
    "integers": (
        lambda x, y: (x * y + 7 - x, x > y, -x, x // 1 if False else x & y),
        (torch.arange(24).reshape(4, 6), torch.arange(24).reshape(4, 6) * 3),
    ),
    "int32 wraps": (lambda x, y: x * y * y, (torch.full((4,), 2**30, dtype=torch.int32), torch.full((4,), 7, dtype=torch.int32))),
    "integer and float": (lambda x, y: x * y + x / 2, (torch.arange(24).reshape(4, 6), _values(4, 6))),
    "integer and half": (lambda x, y: x + y, (torch.arange(24).reshape(4, 6), _values(4, 6, dtype=torch.bfloat16))),
    "truth and float": (lambda x, y: x * y + (y > 0), (torch.arange(24).reshape(4, 6) % 2 == 0, _values(4, 6))),
    "sum of truths": (lambda x, y: ((y > 0).sum(-1), x.sum(-1)), (torch.arange(24).reshape(4, 6), _values(4, 6))),
    "0-d promotes less": (lambda x, y: x * y, (torch.tensor(1.5, dtype=torch.float32), _values(4, 6, dtype=torch.bfloat16))),
    "comparison across types": (lambda x, y: (x > y, x == 2.5, x >= 1), (torch.arange(24).reshape(4, 6), _values(4, 6))),
    "unsigned bytes": (
        lambda x, y: (x + y, x * 2, x.float() - y),
        (torch.arange(24, dtype=torch.uint8), torch.full((24,), 250, dtype=torch.uint8)),
    ),
}


@pytest.mark.parametrize("name", list(MIXES))
def test_mixed_types(name: str) -> None:
    function, inputs = MIXES[name]
    _check(function, *inputs, ulps=2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_and_not_a_number(dtype: torch.dtype) -> None:
    special = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-30, -1e30, 65504.0, 1.0], dtype=torch.float32).to(
        dtype
    )
    other = special.flip(0)
    _check(
        lambda x, y: (x + y, x * y, torch.maximum(x, y), torch.minimum(x, y), x.relu(), x.clamp(-1, 1), torch.where(x > y, x, y)),
        special,
        other,
    )
    _check(lambda x, y: (x == y, x != y, x < y, x >= y, x.abs(), x.sign(), x.to(torch.bool)), special, other)
    _check(
        lambda x: (x.exp(), x.tanh(), x.sigmoid(), F.silu(x), F.gelu(x.clamp(max=9)), x.sqrt(), x.rsqrt(), x.log(), x.erf()),
        special,
        ulps=4,
    )
    _check(lambda x: (x.amax(-1), x.amin(-1), x.sum(-1)), special[None].clone())
    _check(lambda x: torch.softmax(x, -1), torch.stack([special, other]), ulps=4)
    masked = torch.full((2, 8), float("-inf"), dtype=dtype)
    masked[0, :3] = 1.0
    _check(lambda x: torch.softmax(x, -1), masked, ulps=4)


def test_writes_between_reads() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        before = x * 2 + y
        x.add_(y)
        after = x * 2 + y
        x[0].mul_(3)
        return before, after, x.relu() + before

    for _ in range(2):
        x, y = _values(4, 6), _values(4, 6, seed=1)
        ours_x, ours_y = x.to("neuron"), y.to("neuron")
        torch.compiler.reset()
        expected = function(x, y)
        actual = torch.compile(function, backend="neuron", fullgraph=True)(ours_x, ours_y)
        for ours, theirs in zip((*actual, ours_x), (*expected, x), strict=True):
            _close(ours, theirs, 0)


def test_views_of_results_share_memory() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2 + 1
        return y, y.t(), y[1:], x[0]

    x = _values(4, 6).to("neuron")
    torch.compiler.reset()
    y, transposed, tail, row = torch.compile(function, backend="neuron", fullgraph=True)(x)
    y.zero_()
    assert torch.equal(transposed.cpu(), torch.zeros(6, 4))
    assert torch.equal(tail.cpu(), torch.zeros(3, 6))
    x.zero_()
    assert torch.equal(row.cpu(), torch.zeros(6))


def test_calls_do_not_share_results() -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="neuron", fullgraph=True)
    first = compiled(torch.ones(4, device="neuron"))
    second = compiled(torch.zeros(4, device="neuron"))
    assert first.tolist() == [3.0] * 4
    assert second.tolist() == [1.0] * 4


GRADIENTS: dict[str, Callable[..., torch.Tensor]] = {
    "rms norm": _rms_norm,
    "swiglu": lambda x, w: F.silu(x) * (x * w),
    "gelu": lambda x, w: F.gelu(x * w) + F.gelu(x, approximate="tanh"),
    "layer norm": lambda x, w: F.layer_norm(x * 2, (x.shape[-1],), w, w),
    "softmax": lambda x, w: torch.softmax(x * w, -1) * x,
    "log softmax": lambda x, w: torch.log_softmax(x * w, -1),
    "rope": lambda x, w: x * w + _rotate_half(x) * (1 - w),
    "relu": lambda x, w: F.relu(x * w) ** 2,
    "tanh": lambda x, w: torch.tanh(x) * torch.sigmoid(x * w),
    "mask": lambda x, w: x.masked_fill(x > 1, 0.0) * w,
    "broadcast": lambda x, w: x + w * 2,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradients(name: str, dtype: torch.dtype) -> None:
    function = GRADIENTS[name]
    inputs = (_values(3, 5, 32, dtype=dtype), _values(32, dtype=dtype, seed=1))
    weights = _values(3, 5, 32, dtype=dtype, seed=2)
    expected = [value.clone().requires_grad_() for value in inputs]
    (function(*expected) * weights).sum().backward()
    actual = [value.to("neuron").requires_grad_() for value in inputs]
    torch.compiler.reset()
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    (compiled(*actual) * weights.to("neuron")).sum().backward()
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        scale = theirs.grad.abs().max().item()
        torch.testing.assert_close(
            ours.grad.cpu(), theirs.grad, rtol=32 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps * max(1.0, scale)
        )


def test_large_regions_use_all_threads_and_agree() -> None:
    x, y = _values(301, 1025), _values(1025, seed=1)
    _check(lambda x, y: (x * y + x).relu() - 0.5, x, y)
    _check(_rms_norm, x, y, ulps=8)
    _check(lambda x, y: x.t() * 2 + 1, x, y)
    assert math.isfinite(x.sum().item())


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "name", ["isnan", "logical_not", "abs", "neg", "sign", "square", "reciprocal", "floor", "relu", "sigmoid", "exp", "erf"]
)
def test_every_dtype_is_fused_or_left_alone(name: str, dtype: torch.dtype) -> None:
    """What an operation has no kernel for stays with ATen, errors included."""
    x = torch.tensor([0, 1, 3, 2, 1]).to(dtype)
    function = getattr(torch, name)
    try:
        function(x)
    except RuntimeError:
        with pytest.raises(Exception, match=r"not (supported|implemented)"):
            torch.compile(function, backend="neuron")(x.to("neuron"))
        return
    _check(function, x, ulps=4)


@pytest.mark.parametrize("size", [1, 2, 1000, 3000])
def test_reductions_of_numbers(size: int) -> None:
    """A row of one number, as `torch.masked.mean` counts elements."""
    _check(lambda x: x.sum() / torch.ones_like(x, dtype=torch.int64).sum(-1), torch.ones(size), ulps=4)
    _check(lambda x: x + torch.full_like(x, 0.5).amax(-1) - torch.zeros_like(x).sum(-1), torch.ones(size), ulps=4)
