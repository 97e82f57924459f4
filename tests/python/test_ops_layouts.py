"""Layouts: strides of results, operands that overlap, and layouts that the device does not store (zero, nested, oneDNN tensors)."""

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


def test_layouts_that_the_device_does_not_have_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="to_mkldnn"):
        torch.eye(2, device="neuron").to_mkldnn()
    with pytest.raises((NotImplementedError, RuntimeError), match=r"neuron|layout|Mkldnn"):
        torch.empty(2, layout=torch._mkldnn, device="neuron")


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


ZERO_TENSOR_USES = {
    "copy_": lambda zero, full: torch.empty_like(full).copy_(zero),
    "copy_ to the host": lambda zero, full: torch.ones(3).copy_(zero),
    "copy_ from the host": lambda zero, full: full.clone().copy_(torch._efficientzerotensor((3,))),
    "copy_ broadcast": lambda zero, full: torch.ones(2, 3, device=full.device).copy_(zero),
    "copy_ into it": lambda zero, full: zero.copy_(full),
    "zero_": lambda zero, full: zero.zero_(),
    "normal_": lambda zero, full: zero.normal_(),
    "setitem": lambda zero, full: torch.ones(4, device=full.device).__setitem__(slice(3), zero),
    "clone": lambda zero, full: zero.clone(),
    "dot": lambda zero, full: torch.dot(zero, full) + 1,
    "vdot": lambda zero, full: torch.vdot(full, zero) + 1,
    "dot is zero": lambda zero, full: torch.dot(zero, full)._is_zerotensor(),
    "item": lambda zero, full: zero[0].item(),
    "cat": lambda zero, full: torch.cat([zero, full]),
    "add": lambda zero, full: zero + full,
    "add_": lambda zero, full: full.clone().add_(zero),
    "mul_": lambda zero, full: full.clone().mul_(zero),
    "add number": lambda zero, full: zero + 1,
    "mul number": lambda zero, full: zero * 3 + 1,
    "index_select": lambda zero, full: torch.index_select(zero, 0, torch.tensor([1], device=full.device)),
    "sum": lambda zero, full: zero.sum(),
    "to": lambda zero, full: zero.to(torch.float64),
    "unfold": lambda zero, full: zero.unfold(0, 2, 1) + 1,
    "where": lambda zero, full: torch.where(full > 1, zero, full),
}


@pytest.mark.parametrize("use", ZERO_TENSOR_USES)
def test_zero_tensors_are_those_of_the_cpu(use: str) -> None:
    def outcome(device: str) -> object:
        zero, full = torch._efficientzerotensor((3,), device=device), torch.arange(3.0, device=device)
        try:
            result = ZERO_TENSOR_USES[use](zero, full)
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        return result.tolist() if isinstance(result, torch.Tensor) else result

    assert outcome("neuron") == outcome("cpu")


def test_mode_into_given_tensors() -> None:
    values = torch.tensor([[1, 2, 2], [3, 3, 1]])
    out = torch.empty(2, dtype=torch.int64, device="neuron"), torch.empty(2, dtype=torch.int64, device="neuron")
    torch.mode(values.to("neuron"), out=out)
    for ours, theirs in zip(out, torch.mode(values), strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_selecting_from_no_rows_raises_as_on_the_cpu() -> None:
    messages = []
    for device in ("cpu", "neuron"):
        with pytest.raises(RuntimeError) as error:
            torch.nn.functional.embedding(torch.tensor([0], device=device), torch.ones(0, 4, device=device))
        messages.append((type(error.value), str(error.value)))
    assert messages[0] == messages[1]


def test_conjugating_in_place() -> None:
    values = torch.tensor([1 + 2j, 3 - 4j])
    moved = values.to("neuron")
    assert moved.conj_physical_() is moved
    assert torch.equal(moved.cpu(), values.conj_physical())


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_outputs_that_kernels_conjugate_lazily(left: bool, adjoint: bool) -> None:
    """linalg.lu_solve writes the conjugate of some results into `out` and sets its bit."""
    torch.manual_seed(0)
    lu, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64))
    given = torch.randn(3, 3, dtype=torch.complex64)
    results = []
    for device in ("cpu", "neuron"):
        out = torch.empty(3, 3, dtype=torch.complex64, device=device)
        torch.linalg.lu_solve(lu.to(device), pivots.to(device), given.to(device), left=left, adjoint=adjoint, out=out)
        results.append((out.is_conj(), out.cpu().resolve_conj()))
    assert results[0][0] == results[1][0]
    torch.testing.assert_close(results[1][1], results[0][1])
