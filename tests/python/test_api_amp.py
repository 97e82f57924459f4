"""Autocast and gradient scaling under torch's names and under torch.neuron.amp."""

import pytest
import torch


def test_supported_dtypes():
    assert set(torch.neuron.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16, torch.float32}
    assert torch.neuron.amp.get_amp_supported_dtype is torch.neuron.get_amp_supported_dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spelling", ["torch", "module"])
def test_autocast_computes_matmul_in_low_precision(dtype, spelling):
    context = torch.autocast("neuron", dtype=dtype) if spelling == "torch" else torch.neuron.amp.autocast(dtype=dtype)
    left = torch.randn(4, 4, device="neuron")
    with context:
        assert torch.is_autocast_enabled("neuron")
        assert (left @ left).dtype == dtype
        assert torch.softmax(left.to(dtype), -1).dtype == torch.float32
        with torch.autocast("neuron", enabled=False):
            assert (left @ left).dtype == torch.float32
    assert not torch.is_autocast_enabled("neuron")
    assert (left @ left).dtype == torch.float32


def test_unsupported_dtype_warns_and_disables():
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("neuron", dtype=torch.float64):
        assert not torch.is_autocast_enabled("neuron")


def test_custom_function_decorators():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.neuron.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, value):
            assert value.dtype == torch.float32
            return value * 2

        @staticmethod
        @torch.neuron.amp.custom_bwd
        def backward(ctx, gradient):
            return gradient * 2

    value = torch.ones(3, device="neuron", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        Double.apply(value).sum().backward()
    assert value.grad.tolist() == [2, 2, 2]


def test_grad_scaler_skips_steps_with_infinities():
    parameter = torch.nn.Parameter(torch.ones(2, device="neuron"))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler = torch.neuron.amp.GradScaler(init_scale=4.0)
    parameter.grad = torch.full((2,), float("inf"), device="neuron")
    scaler.scale(torch.ones((), device="neuron"))
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1, 1]
    assert scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    assert parameter.tolist() == [0.5, 0.5]
