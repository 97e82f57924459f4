"""Layer norm by our own kernel: against float64, with the CPU's layouts, dtypes of statistics, gradients and errors."""

import itertools

import pytest
import torch
import torch.nn.functional as F

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def given(shape: tuple[int, ...], normalized: tuple[int, ...], dtype: torch.dtype, parameters: torch.dtype) -> list[torch.Tensor]:
    """Input, weight and bias on the CPU."""
    numbers = torch.Generator().manual_seed(3)
    input, weight, bias = (torch.randn(size, generator=numbers) for size in (shape, normalized, normalized))
    return [(2 * input + 1).to(dtype), weight.to(parameters), bias.to(parameters)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parameters", ["same", "float32", "none", "weight only"])
@pytest.mark.parametrize(("shape", "normalized"), [((5, 128), (128,)), ((2, 3, 200), (200,)), ((2, 8, 16), (8, 16)), ((300, 257), (257,))])
def test_values_and_statistics(dtype, parameters, shape, normalized):
    input, weight, bias = given(shape, normalized, dtype, torch.float32 if parameters == "float32" else dtype)
    weight = None if parameters == "none" else weight
    bias = bias if parameters in ("same", "float32") else None
    cpu = torch.native_layer_norm(input, normalized, weight, bias, 1e-5)
    device = [t if t is None else t.to("neuron") for t in (input, weight, bias)]
    ours = torch.native_layer_norm(device[0], normalized, device[1], device[2], 1e-5)
    exact = torch.native_layer_norm(input.double(), normalized, *(t if t is None else t.double() for t in (weight, bias)), 1e-5)
    for mine, reference, true in zip(ours, cpu, exact, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (reference.dtype, reference.shape, reference.stride())
        torch.testing.assert_close(mine.cpu(), reference)
        assert (mine.cpu() - true).abs().max() <= 1.5 * (reference - true).abs().max() + torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype):
    results = []
    for place in ("cpu", "neuron"):
        input, weight, bias = (t.to(place).requires_grad_() for t in given((20, 128), (128,), dtype, dtype))
        F.layer_norm(input, (128,), weight, bias).square().sum().backward()
        results.append([t.grad.cpu() for t in (input, weight, bias)])
    for reference, ours in zip(*results, strict=True):
        torch.testing.assert_close(
            ours, reference, rtol=0.02 if dtype is not torch.float32 else 1e-5, atol=0.02 if dtype is not torch.float32 else 1e-5
        )


def test_layouts():
    for change, parameter in itertools.product(
        (lambda t: t.transpose(0, 1), lambda t: t[:, ::2], lambda t: t.expand(3, *t.shape), lambda t: t[:0]),
        (lambda t: t, lambda t: t.flip(0)),
    ):
        input, weight, bias = given((6, 8, 128), (128,), torch.float32, torch.float32)
        cpu = F.layer_norm(change(input), (128,), parameter(weight), bias)
        ours = F.layer_norm(change(input.to("neuron")), (128,), parameter(weight.to("neuron")), bias.to("neuron"))
        assert ours.stride() == cpu.stride()
        torch.testing.assert_close(ours.cpu(), cpu)


def test_special_values_stay_in_their_rows():
    input = torch.ones(4, 256)
    input[0, 3], input[1, 5], input[2] = torch.nan, torch.inf, 0.0
    ours = F.layer_norm(input.to("neuron"), (256,)).cpu()
    torch.testing.assert_close(ours, F.layer_norm(input, (256,)), equal_nan=True)


@pytest.mark.parametrize(
    ("normalized", "weight"),
    [((32,), torch.ones(256)), ((256,), torch.ones(32)), ((256,), torch.ones(256, dtype=torch.float64)), ((), None)],
)
def test_errors_are_the_cpus(normalized, weight):
    messages = []
    for place in ("cpu", "neuron"):
        with pytest.raises(RuntimeError) as raised:
            torch.native_layer_norm(torch.ones(4, 256, device=place), normalized, None if weight is None else weight.to(place), None, 1e-5)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
