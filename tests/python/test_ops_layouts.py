"""Layouts: strides of results, operands that overlap, and layouts that the device does not store (zero, nested, sparse tensors)."""

import pytest
import torch
from torch.autograd import forward_ad


def test_zero_tensor_has_no_bytes_and_behaves_like_zeros() -> None:
    before = torch.neuron.memory_allocated(1)
    zero = torch._efficientzerotensor((2, 3), dtype=torch.float64, device="neuron:1")
    assert zero.device == torch.device("neuron:1") and zero.shape == (2, 3) and zero.dtype == torch.float64
    assert zero._is_zerotensor()
    assert torch.neuron.memory_allocated(1) == before
    other = torch.arange(6.0, dtype=torch.float64, device="neuron:1").reshape(2, 3)
    assert torch.equal((zero + other).cpu(), other.cpu())
    assert not (zero * other).cpu().any()


def test_zero_tensor_checks_its_arguments() -> None:
    with pytest.raises(RuntimeError, match="negative dimension"):
        torch._efficientzerotensor((-1,), device="neuron")
    with pytest.raises(ValueError, match="neuron:99"):
        torch._efficientzerotensor((1,), device="neuron:99")


def test_forward_derivatives_are_those_of_the_cpu() -> None:
    torch.manual_seed(0)
    values = [torch.rand(4, dtype=torch.float64) for _ in range(4)]

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * b).sin().sum() + (b * 2).exp().mean() + a.detach().sum()

    def derivative(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        a, b, da, db = (value.to(device) for value in values)
        value, tangent = torch.func.jvp(function, (a, b), (da, db))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(a, da)
            product = forward_ad.unpack_dual(dual.view(2, 2) * b.view(2, 2)).tangent
        assert tangent.device.type == product.device.type == torch.device(device).type
        return torch.stack((value, tangent)).cpu(), product.cpu()

    for expected, actual in zip(derivative("cpu"), derivative("neuron"), strict=True):
        assert torch.equal(expected, actual)


@pytest.mark.parametrize("left_aligned", [True, False])
def test_transformer_encoder_with_a_padded_batch(left_aligned: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    batch = torch.randn(2, 5, 8)
    padding = torch.tensor([[False, False, False, True, True], [False] * 5])
    if not left_aligned:
        padding = padding.flip(1)
    with torch.no_grad():
        expected = encoder(batch, src_key_padding_mask=padding)
        actual = encoder.to("neuron")(batch.to("neuron"), src_key_padding_mask=padding.to("neuron")).cpu()
    torch.testing.assert_close(actual[~padding], expected[~padding])


def test_sparse_layout_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="_to_sparse"):
        torch.eye(2, device="neuron").to_sparse()
    with pytest.raises(NotImplementedError):
        torch.empty(2, layout=torch.sparse_coo, device="neuron")


@pytest.mark.parametrize(
    ("target", "source", "overlaps"),
    [
        (slice(1, None), slice(None, -1), True),
        (slice(None, -1), slice(1, None), True),
        (slice(None, 4), slice(4, None), False),
        (slice(1, 5), slice(1, 5), False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_copies_between_overlapping_views_are_refused(target: slice, source: slice, overlaps: bool, dtype: torch.dtype) -> None:
    for device in ("cpu", "neuron"):
        values = torch.arange(8, device=device).to(dtype)
        expected = values.tolist()
        if overlaps:
            with pytest.raises(RuntimeError, match="refer to a single memory location"):
                values[target] = values[source]
        else:
            expected[target] = expected[source]
            values[target] = values[source]
        assert values.tolist() == expected


@pytest.mark.parametrize("number", [2, 0.5])
def test_a_number_keeps_the_strides_as_on_the_cpu(number: float) -> None:
    def shapes(device: str) -> list[torch.Tensor]:
        ones = torch.ones(1, 3, device=device)
        middle = torch.ones(2, 4, 1, 3, device=device)
        empties = [torch.empty(0, 1, device=device), torch.empty(2, 0, device=device).mT, torch.empty(0, device=device)]
        return [ones, ones.mT, middle, middle.transpose(1, 2), middle[:1, 1:2], torch.ones((), device=device), *empties]

    for ours, theirs in zip(shapes("neuron"), shapes("cpu"), strict=True):
        assert (ours * number).stride() == (theirs * number).stride()
        assert (ours + number).stride() == (theirs + number).stride()
        assert torch.equal((ours + number).cpu(), theirs + number)
