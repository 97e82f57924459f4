"""Compiled graphs compute what eager computes on the same device: forward, mutation, views, odd tensors, modules."""

from typing import Any

import pytest
import torch
import torch._dynamo
from compile_helpers import (
    DEVICE,
    assert_same,
    check_against_eager,
    compile_neuron,
    fresh_compiler,  # noqa: F401 (an autouse fixture)
    graph_count,
)
from torch import nn


def rand(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype).to(DEVICE)


def test_forward_runs_on_the_device() -> None:
    result = check_against_eager(lambda x, w: torch.nn.functional.gelu(x @ w).softmax(-1), rand(4, 8), rand(8, 6), ulps=4)
    assert result.device == DEVICE


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64],
)
def test_element_types(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype).to(DEVICE)
    check_against_eager(lambda t: (t.clone(), torch.cat([t, t]), t == t.flip(0), t.t().contiguous()), x)


def test_every_kind_of_literal_argument() -> None:
    def function(x: torch.Tensor) -> Any:
        return (
            torch.clamp(x, -0.5, 0.5),
            x.add(1, alpha=3),
            x.to(torch.bfloat16),
            torch.full((2, 2), 7.5, dtype=torch.float64, device=x.device),
            torch.arange(0, 10, 3, device=x.device),
            nn.functional.gelu(x, approximate="tanh"),
            torch.sum(x, dim=(0, 1), keepdim=True),
            nn.functional.pad(x, [1, 2], value=-1.0),
            torch.var(x, dim=None, correction=0),
            x.contiguous(memory_format=torch.contiguous_format),
            torch.empty_like(x, memory_format=torch.preserve_format).zero_(),
            torch.quantile(x, 0.25),
            x * (1 + 0j),
        )

    check_against_eager(function, rand(4, 6), ulps=4)


def test_lists_of_tensors_in_and_out() -> None:
    def function(x: torch.Tensor, index: torch.Tensor) -> Any:
        a, b, c = x.split([1, 2, 3], dim=1)
        parts = torch.unbind(x, 0)
        return torch.cat([c, a, b], 1), torch.stack(list(parts)), x[index], x[:, index], torch.meshgrid(x[0], x[1], indexing="ij")

    check_against_eager(function, rand(4, 6), torch.tensor([2, 0, 1], device=DEVICE))


def test_several_results_of_which_some_are_dropped() -> None:
    def function(x: torch.Tensor) -> Any:
        values, _ = x.max(dim=1)
        _, indices = torch.topk(x, 2)
        return values, indices, torch.linalg.qr(x)[1], torch.var_mean(x)

    check_against_eager(function, rand(4, 4))


def test_outputs_that_are_no_tensors() -> None:
    def function(x: torch.Tensor) -> Any:
        return {"x": x + 1, "none": None, "size": x.shape[0], "flag": True, "text": "t", "nested": (1.5, [x.sum()])}

    check_against_eager(function, rand(3, 2))


def test_odd_tensors() -> None:
    scalar = torch.tensor(2.0, device=DEVICE)
    empty = torch.empty(0, 4, device=DEVICE)
    strided = rand(6, 8)[::2, 1::3]
    expanded = rand(1, 4).expand(3, 4)
    transposed = rand(4, 3).t()
    check_against_eager(
        lambda s, e, a, b, c: (s * 2, e + s, e.sum(), a * s, b + c, torch.cat([e, b]), a.contiguous(), c.reshape(-1)),
        scalar,
        empty,
        strided,
        expanded,
        transposed,
    )


def test_a_host_scalar_joins_device_tensors() -> None:
    check_against_eager(lambda x, s: x * s + 1, rand(3), torch.tensor(2.5))


def test_the_same_tensor_twice() -> None:
    x = rand(3, 3)
    compiled = compile_neuron(lambda a, b: (a + b, a.mul_(2), b))
    expected = x + x, x * 2
    total, first, second = compiled(x, x)
    assert_same((total, x), expected)
    assert first is x and second is x


def test_inputs_that_share_memory() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        b.mul_(3)
        return a + b.sum()

    base, reference = rand(6), rand(6)
    expected = function(reference[:4], reference[2:])
    compiled = compile_neuron(function)
    assert_same(compiled(base[:4], base[2:]), expected)
    assert_same(base, reference)


def test_mutation_of_inputs() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1).mul_(2)
        y[0] = x.sum()
        y[1:, ::2].zero_()
        x.t()[0].fill_(5)
        return x @ y

    check_against_eager(function, rand(4, 4), rand(4, 4))


def test_mutation_of_metadata() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.unsqueeze_(0)
        return x * 2

    x, reference = rand(3), rand(3)
    assert_same(compile_neuron(function, fullgraph=False)(x), function(reference))  # Dynamo breaks the graph there
    assert x.shape == reference.shape == (1, 3)


def test_mutation_is_seen_by_autograd() -> None:
    weight, x = rand(3).requires_grad_(), rand(3)
    loss = (weight * x).sum()  # saves x
    with torch.no_grad():
        compile_neuron(lambda t: t.add_(1))(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_outputs_that_alias_inputs_and_each_other() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        return x, x.view(-1), x.t(), y, y[1:], y.view(-1)

    x = rand(2, 3)
    results = compile_neuron(function)(x)
    assert_same(results, function(x))
    assert results[0] is x
    assert results[1].data_ptr() == x.data_ptr() and results[2].data_ptr() == x.data_ptr()
    assert results[4].untyped_storage().data_ptr() == results[3].untyped_storage().data_ptr() == results[5].untyped_storage().data_ptr()
    results[1].zero_()
    assert not x.any()


def test_constants_of_the_graph() -> None:
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=DEVICE)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x @ table + torch.tensor(0.5) + torch.tensor([1.0, 2.0], device=x.device)

    check_against_eager(function, rand(3, 2))


def test_a_large_constant_is_shared_not_copied() -> None:
    large = rand(1024, 1024)
    compiled = compile_neuron(lambda x: x + large)
    x = rand(1024)
    compiled(x)
    before = torch.neuron.memory_allocated()
    result = compiled(x)
    assert torch.neuron.memory_allocated() - before == result.nbytes
    assert_same(result, x + large)


def test_a_deep_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for step in range(700):
            x = torch.sin(x) + step * 1e-3
        return x

    check_against_eager(function, rand(5))


def test_a_graph_without_tensors_or_calls() -> None:
    assert_same(compile_neuron(lambda x: x)(x := rand(2)), x)
    assert_same(compile_neuron(lambda: torch.ones(2, 2, device=DEVICE), fullgraph=True)(), torch.ones(2, 2, device=DEVICE))


def test_graph_breaks_make_several_graphs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + x

    check_against_eager(function, rand(3), fullgraph=False, graphs=2)


def test_fullgraph_reports_breaks() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compile_neuron(function)(rand(3))


def test_control_flow_on_data_breaks_the_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    for x in (torch.ones(3, device=DEVICE), -torch.ones(3, device=DEVICE)):
        assert_same(compile_neuron(function, fullgraph=False)(x), function(x))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes(mode: Any) -> None:
    x, weight = rand(2, 3), rand(3, 4).requires_grad_()
    compiled = compile_neuron(lambda a, w: (a @ w).relu())
    with mode():
        result, expected = compiled(x, weight), (x @ weight).relu()
    assert_same(result.detach(), expected.detach())
    assert result.requires_grad == expected.requires_grad


def test_inference_tensors_may_be_written() -> None:
    with torch.inference_mode():
        x = rand(3)
        compile_neuron(lambda t: t.add_(1))(x)
        assert_same(x, rand(3) + 1)


@pytest.mark.parametrize("inside", [True, False])
def test_autocast(inside: bool) -> None:
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).softmax(-1)

    def with_autocast(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return product(x, w)

    x, w = rand(4, 8), rand(8, 8)
    expected = with_autocast(x, w)
    if inside:
        result = compile_neuron(with_autocast)(x, w)
    else:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            result = compile_neuron(product)(x, w)
    assert_same(result, expected, ulps=4)


def test_module_with_buffers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).to(DEVICE)
    x = rand(3, 2, 6, 6)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = [model(x) for _ in range(2)]
    expected_state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    compiled = compile_neuron(model)
    assert_same([compiled(x).detach() for _ in range(2)], [result.detach() for result in expected])
    assert_same(dict(model.state_dict()), expected_state)
    assert int(model[1].num_batches_tracked) == int(state["1.num_batches_tracked"]) + 2
    model.eval()
    assert_same(compiled(x).detach(), model(x).detach())


def test_another_core() -> None:
    other = torch.device("neuron", 1)
    x = rand(4, 4).to(other)
    result = compile_neuron(lambda t: (t @ t).relu() + torch.ones(4, 4, device=t.device))(x)
    assert result.device == other
    assert_same(result, (x @ x).relu() + 1)


def test_higher_order_operators_run_through_python() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda t: t * 2, lambda t: t - 1, (x,)) + 1

    for x in (torch.ones(3, device=DEVICE), -torch.ones(3, device=DEVICE)):
        assert_same(compile_neuron(function)(x), function(x))


def test_custom_operators_in_python() -> None:
    @torch.library.custom_op("softneuron_tests::scale", mutates_args=())
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    @scale.register_fake
    def _(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.empty_like(x)

    @torch.library.custom_op("softneuron_tests::bump", mutates_args=("x",))
    def bump(x: torch.Tensor, by: int) -> None:
        x.add_(by)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = scale(x, 2.0)
        bump(y, 3)
        bump(x, 1)
        return y + x

    check_against_eager(function, rand(4))


def test_nothing_runs_on_the_host() -> None:
    from torch_neuronx import clear_op_tracking, get_executed_ops

    x = rand(4, 4)
    compiled = compile_neuron(lambda t: torch.cumsum(t @ t, 0).softmax(-1))
    compiled(x)
    clear_op_tracking()
    compiled(x)
    # The product and the softmax are instructions of our own, which ask no operator.
    assert set(get_executed_ops()) == {"aten::cumsum"}
    assert graph_count() == 1


def test_opaque_objects_pass_through_steps_in_python() -> None:
    from torch_neuronx._C import ProgramBuilder, Value

    class Handle:
        pass

    seen = []

    def step(values: list[Any]) -> list[Any]:
        handle, x = values
        seen.append(handle)
        return [x + 1, handle, 7]

    kind = (torch.float32, [2], [1], DEVICE)
    builder = ProgramBuilder("opaque")
    handle, x = builder.add_input("object"), builder.add_input(kind)
    results = builder.add_python_call("step", step, [handle, x], [kind, "object", "int"])
    builder.set_outputs([Value(result) for result in results])
    graph, given = builder.finish(), Handle()
    result, returned, number = graph([given, torch.zeros(2, device=DEVICE)])
    assert_same(result, torch.ones(2, device=DEVICE))
    assert returned is given and seen == [given] and number == 7


def test_a_program_refuses_wrong_calls() -> None:
    from torch_neuronx._C import ProgramBuilder, Value

    kind = (torch.float32, [2], [1], DEVICE)
    builder = ProgramBuilder("wrong")
    x = Value(builder.add_input(kind))
    with pytest.raises(NotImplementedError, match="softneuron_tests::missing is not registered"):
        builder.add_call("softneuron_tests::missing", (x,), {}, [kind])
    with pytest.raises(ValueError, match="aten::neg has no argument 'alpha'"):
        builder.add_call("aten::neg", (x,), {"alpha": 1}, [kind])
    with pytest.raises(ValueError, match="aten::add misses its argument 'other'"):
        builder.add_call("aten::add.Tensor", (x,), {}, [kind])
    with pytest.raises(TypeError, match="cannot hand over an argument of type object"):
        builder.add_call("aten::neg", (object(),), {}, [kind])
    (y,) = builder.add_call("aten::neg", (x,), {}, [kind])
    builder.set_outputs([Value(y)])
    graph = builder.finish()
    with pytest.raises(ValueError, match="takes 1 inputs, got 2"):
        graph([torch.zeros(2, device=DEVICE)] * 2)
