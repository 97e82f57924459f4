"""Attention on the device: our kernel forward, PyTorch's backward.

Bound: not further from float64 than 1.5 times the CPU's own error and 4 (float32) or 1 (others) units of rounding of the largest result.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

DEVICE = "neuron"
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
Tensors = tuple[Tensor, ...]


def errors(function: Callable[..., Tensors], *inputs: Tensor | None) -> None:
    """Compare what ``function`` returns on the device, on the CPU and in float64 on the CPU."""

    def moved(to: Callable[[Tensor], Tensor]) -> Tensors:
        results = function(*(None if x is None else to(x) for x in inputs))
        return tuple(x.detach().cpu().double() for x in results)

    exact = moved(lambda x: x.double() if x.is_floating_point() else x)
    expected = moved(lambda x: x.clone())
    actual = moved(lambda x: x.to(DEVICE))
    for ours, theirs, reference in zip(actual, expected, exact, strict=True):
        assert ours.shape == theirs.shape
        dtype = inputs[0].dtype
        unit = (4 if dtype is torch.float32 else 1) * torch.finfo(dtype).eps * reference.abs().max()
        assert (ours - reference).abs().max() <= 1.5 * (theirs - reference).abs().max() + unit


def with_gradients(function: Callable[..., Tensor]) -> Callable[..., Tensors]:
    def run(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Tensors:
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        out = function(q, k, v, *rest)
        out.square().sum().backward()
        return out, q.grad, k.grad, v.grad

    return run


DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 600), (5, 70), (40, 40), (130, 260)])
@pytest.mark.parametrize("form", ["plain", "causal", "boolean", "added", "per head"])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)])
def test_forward_and_backward(dtype: torch.dtype, queries: int, keys: int, form: str, heads: tuple[int, int]) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, heads[0], queries, 20).to(dtype)
    k, v = torch.randn(2, 2, heads[1], keys, 20).to(dtype)
    mask = {
        "boolean": torch.rand(2, 1, queries, keys) > 0.4,
        "added": torch.randn(queries, keys).to(dtype),
        "per head": torch.randn(1, heads[0], 1, keys).to(dtype),
    }.get(form)

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        added = mask.to(q.dtype) if mask is not None and mask.is_floating_point() else mask
        return F.scaled_dot_product_attention(q, k, v, added, is_causal=form == "causal", enable_gqa=heads[0] != heads[1])

    errors(with_gradients(attend), q, k, v, mask)


@pytest.mark.parametrize("queries", [1, 30])
def test_expanded_heads_and_other_strides(queries: int) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensors:
        k, v = (x[:, :, None].expand(2, 2, 3, 50, 16).reshape(2, 6, 50, 16) if x.shape[1] == 2 else x.expand(2, 6, 50, 16) for x in (k, v))
        return (F.scaled_dot_product_attention(q.transpose(1, 2), k, v),)

    errors(attend, torch.randn(2, queries, 6, 16), torch.randn(2, 2, 50, 16), torch.randn(2, 1, 50, 16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries", [1, 20])
def test_static_cache(dtype: torch.dtype, queries: int) -> None:
    """A cache of 512 places of which few are filled, and Hugging Face's mask of four dimensions."""
    q = torch.randn(1, 8, queries, 64).to(dtype)
    k, v = torch.zeros(2, 1, 4, 512, 64).to(dtype)
    k[:, :, :37].normal_()
    v[:, :, :37].normal_()
    mask = (torch.arange(512) <= torch.arange(37 - queries, 37)[:, None])[None, None]
    errors(lambda q, k, v, mask: (F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True),), q, k, v, mask)


@pytest.mark.parametrize("queries", [1, 30])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_see_nothing_are_zero(queries: int, dtype: torch.dtype) -> None:
    x = torch.randn(1, 2, queries, 8, device=DEVICE, dtype=dtype)
    mask = torch.ones(queries, queries, device=DEVICE, dtype=torch.bool)
    mask[0] = False
    out, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        x, x, x, attn_mask=torch.zeros(mask.shape, device=DEVICE, dtype=dtype).masked_fill(~mask, -torch.inf)
    )
    assert (out[:, :, 0] == 0).all() and (logsumexp[:, :, 0] == 0).all()
    assert not out.isnan().any()


@pytest.mark.parametrize("queries", [1, 9, 40])
def test_layout_of_the_results(queries: int) -> None:
    results = []
    for device in ("cpu", DEVICE):
        k = torch.randn(2, 4, 33, 16, device=device)
        for q in (
            torch.randn(2, 4, queries, 16, device=device),
            torch.randn(2, queries, 4, 16, device=device).transpose(1, 2),
            torch.randn(2, 1, queries, 16, device=device).expand(2, 4, queries, 16),
        ):
            results.append(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k))
    for ours, theirs in zip(results[3:], results[:3], strict=True):
        assert [(x.stride(), x.dtype) for x in ours] == [(x.stride(), x.dtype) for x in theirs]


def test_what_the_kernel_does_not_take_is_the_cpus() -> None:
    """Doubles run, dropout and shapes that do not fit have the CPU's error."""
    q = torch.randn(1, 2, 5, 8, dtype=torch.double)
    torch.testing.assert_close(F.scaled_dot_product_attention(*[q.to(DEVICE)] * 3).cpu(), F.scaled_dot_product_attention(q, q, q))
    for change in ({"dropout_p": 0.5}, {"attn_mask": torch.zeros(3, 3)}):
        messages = []
        for device in ("cpu", DEVICE):
            x = torch.randn(1, 2, 5, 8, device=device)
            options = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in change.items()}
            with pytest.raises(RuntimeError) as error:
                torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x, **options)
            messages.append(str(error.value).split("\n")[0])
        assert messages[0] == messages[1]


def test_the_number_of_threads_does_not_matter() -> None:
    q = torch.randn(1, 4, 200, 64, device=DEVICE)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append((F.scaled_dot_product_attention(q, q, q, is_causal=True), F.scaled_dot_product_attention(q[:, :, :1], q, q)))
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)
