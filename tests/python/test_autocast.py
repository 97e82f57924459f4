"""Autocast on the device: the operator lists of CUDA's autocast, checked against explicit casts, and what users do with it."""

from typing import Any

import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists

DEVICE = "neuron:0"
LISTS = AutocastTestLists(torch.device(DEVICE))
# cuDNN's own operators exist for CUDA only.
CUDA_ONLY = {"cudnn_convolution", "cudnn_convolution_transpose"}


def cases(name: str) -> list[Any]:
    """Return the entries of one list of the wheel's autocast tests as pytest parameters (operator name, arguments, rest of the entry)."""
    parameters = []
    for number, (operator, arguments, *rest) in enumerate(getattr(LISTS, name)):
        if operator == "einsum":  # listed with an equation that does not fit its operands
            parameters.append(pytest.param(operator, ("ij,jk->ik", *rest[0]), [], id=f"{operator}-{number}"))
        elif operator not in CUDA_ONLY:
            parameters.append(pytest.param(operator, arguments, rest, id=f"{operator}-{number}"))
    return parameters


def call(operator: str, module: Any, arguments: Any, options: dict[str, Any]) -> Any:
    function = getattr(module, operator, None)
    return function(*arguments, **options) if function is not None else getattr(arguments[0], operator)(*arguments[1:], **options)


def cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return type(value)(cast(item, dtype) for item in value) if isinstance(value, tuple | list) else value


def check(operator: str, module: Any, arguments: Any, options: dict[str, Any], run_as: torch.dtype) -> None:
    """Under autocast the operator must give the dtype, and exactly the values, of a call with explicitly cast arguments."""
    with torch.autocast("neuron", dtype=torch.bfloat16):
        got = call(operator, module, arguments, options)
    expected = call(operator, module, cast(arguments, run_as), options)
    assert type(got) is type(expected)
    got_items, expected_items = (got, expected) if isinstance(got, tuple | list) else ((got,), (expected,))
    for got_item, expected_item in zip(got_items, expected_items, strict=True):
        if not isinstance(got_item, torch.Tensor):
            assert got_item == expected_item
            continue
        assert got_item.device == torch.device(DEVICE)
        assert got_item.dtype == run_as
        torch.testing.assert_close(got_item, expected_item, rtol=0, atol=0, equal_nan=True)


def options_of(rest: list[Any]) -> dict[str, Any]:
    return next((item for item in rest if isinstance(item, dict)), {})


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("torch_fp16"))
def test_lower_precision(operator: str, arguments: Any, rest: list[Any]) -> None:
    check(operator, torch, arguments, options_of(rest), torch.bfloat16)


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("torch_fp32"))
def test_float32(operator: str, arguments: Any, rest: list[Any]) -> None:
    check(operator, torch, arguments, options_of(rest), torch.float32)


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("nn_fp16"))
def test_nn_lower_precision(operator: str, arguments: Any, rest: list[Any]) -> None:
    check(operator, torch._C._nn, arguments, options_of(rest), torch.bfloat16)


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("nn_fp32"))
def test_nn_float32(operator: str, arguments: Any, rest: list[Any]) -> None:
    check(operator, torch._C._nn, arguments, options_of(rest), torch.float32)


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("linalg_fp16"))
def test_linalg_lower_precision(operator: str, arguments: Any, rest: list[Any]) -> None:
    check(operator, torch._C._linalg, arguments, options_of(rest), torch.bfloat16)


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("torch_need_autocast_promote"))
def test_promote(operator: str, arguments: Any, rest: list[Any]) -> None:
    # The lists mix float32 with float16; with bfloat16 as the autocast dtype the lower one has to be bfloat16.
    def lowered(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.bfloat16() if value.dtype == torch.float16 else value
        return type(value)(lowered(item) for item in value) if isinstance(value, tuple | list) else value

    check(operator, torch, lowered(arguments), options_of(rest), torch.float32)


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("torch_expect_builtin_promote"))
def test_builtin_promotion_is_left_alone(operator: str, arguments: Any, rest: list[Any]) -> None:
    with torch.autocast("neuron", dtype=torch.bfloat16):
        got = call(operator, torch, arguments, {})
    if isinstance(got, torch.Tensor):
        assert got.dtype == rest[0]


@pytest.mark.parametrize(("operator", "arguments", "rest"), [*cases("methods_fp16"), *cases("methods_fp32")])
def test_methods(operator: str, arguments: Any, rest: list[Any]) -> None:
    check(operator, None, arguments, {}, torch.bfloat16 if operator == "__matmul__" else torch.float32)


@pytest.mark.parametrize(("operator", "arguments", "rest"), cases("banned"))
def test_banned(operator: str, arguments: Any, rest: list[Any]) -> None:
    with torch.autocast("neuron"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        getattr(torch._C._nn, operator)(*arguments)
    with torch.autocast("neuron", enabled=False):
        getattr(torch._C._nn, operator)(*arguments)


class TestUse:
    def test_default_dtype_is_torchs(self) -> None:
        with torch.autocast("neuron"):
            assert torch.is_autocast_enabled("neuron")
            assert torch.mm(torch.ones(2, 2, device=DEVICE), torch.ones(2, 2, device=DEVICE)).dtype == torch.get_autocast_dtype("neuron")
        assert not torch.is_autocast_enabled("neuron")

    def test_float16(self) -> None:
        with torch.autocast("neuron", dtype=torch.float16):
            assert torch.mm(torch.ones(2, 2, device=DEVICE), torch.ones(2, 2, device=DEVICE)).dtype == torch.float16

    def test_nesting(self) -> None:
        matrix = torch.ones(2, 2, device=DEVICE)
        with torch.autocast("neuron", dtype=torch.bfloat16):
            with torch.autocast("neuron", enabled=False):
                assert (matrix @ matrix).dtype == torch.float32
            assert (matrix @ matrix).dtype == torch.bfloat16

    def test_host_tensors_are_not_cast(self) -> None:
        with torch.autocast("neuron"):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32

    def test_device_tensors_are_not_cast_by_cpu_autocast(self) -> None:
        matrix = torch.ones(2, 2, device=DEVICE)
        with torch.autocast("cpu"):
            assert (matrix @ matrix).dtype == torch.float32
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16

    def test_double_and_integers_are_left_alone(self) -> None:
        with torch.autocast("neuron"):
            double = torch.ones(2, 2, dtype=torch.float64, device=DEVICE)
            assert (double @ double).dtype == torch.float64
            assert torch.sum(torch.ones(2, dtype=torch.int32, device=DEVICE)).dtype == torch.int64

    def test_weights_are_cast_once(self) -> None:
        layer = torch.nn.Linear(64, 64, device=DEVICE)
        inputs = torch.randn(4, 64, device=DEVICE)
        before = torch.accelerator.memory_allocated(DEVICE)
        with torch.autocast("neuron"):
            first = layer(inputs)
            after_one = torch.accelerator.memory_allocated(DEVICE)
            second = layer(inputs)
            after_two = torch.accelerator.memory_allocated(DEVICE)
        assert after_one - before >= 64 * 64 * 2
        # The second call adds its result and its cast input, not another copy of the weight.
        assert after_two - after_one < 64 * 64 * 2
        assert torch.equal(first, second)

    def test_training_step_keeps_float32_parameters(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)).to(DEVICE)
        inputs, target = torch.randn(16, 8, device=DEVICE), torch.randint(0, 3, (16,), device=DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        losses = []
        for _ in range(60):
            with torch.autocast("neuron", dtype=torch.bfloat16):
                output = model(inputs)
                loss = torch.nn.functional.cross_entropy(output, target)
            assert output.dtype == torch.bfloat16
            assert loss.dtype == torch.float32
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert all(parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in model.parameters())
        assert losses[-1] < losses[0] * 0.8

    def test_grad_scaler(self) -> None:
        weight = torch.nn.Parameter(torch.ones(4, device=DEVICE))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler = torch.amp.GradScaler("neuron", init_scale=8.0, growth_interval=1)
        scaler.scale((weight * 2).sum()).backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [16.0] * 4
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [-1.0] * 4
        assert scaler.get_scale() == 16.0
        optimizer.zero_grad()
        scaler.scale((weight * float("inf")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [-1.0] * 4  # the step with infinite gradients was skipped
        assert scaler.get_scale() == 8.0

    def test_custom_forward(self) -> None:
        class Function(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type="neuron", cast_inputs=torch.float32)
            def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
                assert not torch.is_autocast_enabled("neuron")
                return value @ value

            @staticmethod
            @torch.amp.custom_bwd(device_type="neuron")
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                return gradient

        with torch.autocast("neuron"):
            assert Function.apply(torch.ones(2, 2, dtype=torch.bfloat16, device=DEVICE)).dtype == torch.float32

    def test_per_thread(self) -> None:
        import threading

        seen = []
        with torch.autocast("neuron", dtype=torch.bfloat16):
            thread = threading.Thread(target=lambda: seen.append(torch.is_autocast_enabled("neuron")))
            thread.start()
            thread.join()
        assert seen == [False]
