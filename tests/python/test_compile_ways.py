"""Every way in which users compile: no backend named, Inductor's modes and options, export, stances, threads, nested compilation."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from compile_helpers import (
    DEVICE,
    assert_same,
    compile_neuron,
    fresh_compiler,  # noqa: F401 (an autouse fixture)
    graph_count,
)
from torch import nn
from torch._dynamo.utils import counters
from torch.export.passes import move_to_device_pass

import torch_neuronx
from torch_neuronx.neuron_dynamo_backend import settings

INDUCTOR_WAYS: dict[str, dict[str, Any]] = {
    "no backend": {},
    "named": {"backend": "inductor"},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune"},
    "max-autotune-no-cudagraphs": {"mode": "max-autotune-no-cudagraphs"},
    "options": {"options": {"max_autotune": True, "epilogue_fusion": True, "trace.enabled": False}},
    "fullgraph": {"fullgraph": True},
    "static": {"dynamic": False},
}


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 5), nn.Softmax(-1)).to(DEVICE)


class Block(nn.Module):
    """A module of the user's own: `Module.compile` leaves those of torch.nn alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_model()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


def check_close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


# torch.compile(model) and Inductor's names for how


@pytest.mark.parametrize("way", INDUCTOR_WAYS)
@torch.no_grad()
def test_inductor_runs_our_program(way: str) -> None:
    model, x = small_model(), torch.randn(3, 6, device=DEVICE)
    compiled = torch.compile(model, **INDUCTOR_WAYS[way])
    for _ in range(2):
        result = compiled(x)
        assert result.device == DEVICE
        check_close(result, model(x))
    assert graph_count() == 1


@pytest.mark.parametrize("way", ["no backend", "reduce-overhead", "max-autotune"])
def test_inductor_trains_with_our_programs(way: str) -> None:
    model, expected = small_model(), small_model()
    compiled = torch.compile(model, **INDUCTOR_WAYS[way])
    for _ in range(2):
        x = torch.randn(3, 6, device=DEVICE, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        for module, leaf in ((compiled, x), (expected, y)):
            module(leaf)[:, 1].square().sum().backward()
        check_close(x.grad, y.grad)
    check_close([p.grad for p in model.parameters()], [p.grad for p in expected.parameters()])
    assert graph_count() == 2


def test_model_compile_without_a_backend() -> None:
    model, x = Block(), torch.randn(3, 6, device=DEVICE)
    expected = model(x)
    model.compile()
    check_close(model(x), expected)
    assert graph_count() == 1


def test_model_compile_with_the_backend() -> None:
    model, x = Block(), torch.randn(3, 6, device=DEVICE)
    expected = model(x)
    model.compile(backend="neuron", fullgraph=True)
    assert_same(model(x), expected)


@torch.no_grad()
def test_inductor_with_writes_views_numbers_and_nothing() -> None:
    def function(x: torch.Tensor, cache: torch.Tensor, n: int) -> Any:
        cache[1:3].copy_(x[:2])
        cache.add_(n)
        doubled = x * 2
        return cache, doubled, doubled[0], doubled.t(), None, x, n + 1, x.new_zeros(0), torch.arange(3, device=x.device)

    x, cache = torch.randn(4, 5, device=DEVICE), torch.zeros(6, 5, device=DEVICE)
    expected_cache = cache.clone()
    version = cache._version
    actual, expected = torch.compile(function)(x, cache, 3), function(x, expected_cache, 3)
    assert_same(actual, expected)
    assert_same(cache, expected_cache)
    assert actual[0] is cache and actual[5] is x
    assert cache._version > version
    assert actual[2].untyped_storage().data_ptr() == actual[1].untyped_storage().data_ptr()


def test_inductor_draws_random_numbers_on_the_device() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).to(DEVICE)
    compiled = torch.compile(model)
    x = torch.randn(64, 64, device=DEVICE)
    first, second = compiled(x), compiled(x)
    assert 0.4 < (first == 0).float().mean().item() < 0.6
    assert not torch.equal(first, second)
    first.sum().backward()


@torch.no_grad()
def test_inductor_with_a_tensor_of_the_host() -> None:
    result = torch.compile(lambda x, s: x * s)(torch.ones(3, device=DEVICE), torch.tensor(2.0))
    assert_same(result, torch.full((3,), 2.0, device=DEVICE))


@torch.no_grad()
def test_inductor_compiles_each_shape_once() -> None:
    compiled = torch.compile(lambda x: (x * x.shape[0]).sum(1))
    for size in (2, 3, 5, 3, 2):
        x = torch.ones(size, 4, device=DEVICE)
        assert_same(compiled(x), (x * size).sum(1))
    assert graph_count() == 3


def test_inductor_refuses_dynamic_shapes_as_we_do() -> None:
    with pytest.raises(Exception, match="NCC_EMOD025 Dynamic shape is not supported"):
        torch.compile(lambda x: x + 1, dynamic=True)(torch.ones(3, device=DEVICE))


def test_inductor_has_nothing_to_generate() -> None:
    """The device is used inside only, where the pass is not asked: one error that says what to do instead."""
    with pytest.raises(Exception, match='backend="neuron"'):
        torch.compile(lambda x: (x.to("neuron") * 2).cpu())(torch.ones(3))


def test_inductor_says_once_what_is_faster(caplog: pytest.LogCaptureFixture) -> None:
    settings._warned.discard("inductor")
    with caplog.at_level(logging.WARNING, logger="torch_neuronx.compile"):
        for factor in (2, 3):
            torch.compile(lambda x, factor=factor: x * factor)(torch.ones(3, device=DEVICE))
    (message,) = caplog.messages
    assert 'backend="neuron"' in message


def test_no_compiler_of_the_machine_is_needed(run_python: Any) -> None:
    run_python(
        """
        import torch
        x = torch.randn(8, 8, device="neuron")
        torch.testing.assert_close(torch.compile(lambda t: torch.nn.functional.gelu(t @ t) + 1)(x), torch.nn.functional.gelu(x @ x) + 1)
        """,
        env={"CXX": "/nonexistent", "CC": "/nonexistent", "PATH": "/nonexistent"},
    )


def test_inductor_on_the_host_is_left_alone(run_python: Any) -> None:
    run_python(
        """
        import sys, torch, torch._inductor.codegen.common as common
        common.init_backend_registration()
        assert torch._functorch.config.fake_tensor_prefer_device_type is None
        assert "torch_neuronx.neuron_dynamo_backend.backend" not in sys.modules
        assert common.get_scheduling_for_device("cpu").__module__.startswith("torch.")
        assert common.get_wrapper_codegen_for_device("cpu").supports_caching
        assert common.get_custom_backend_pass_for_device("neuron").uuid()  # caches of other devices stay on
        """
    )


def test_the_default_backend_can_be_ours() -> None:
    torch.compiler.set_default_backend("neuron")
    try:
        x = torch.ones(3, device=DEVICE)
        assert_same(torch.compile(lambda t: t + 1, fullgraph=True)(x), x + 1)
        (record,) = torch_neuronx.get_dynamo_metrics()
        assert "_inductor_" not in record["graph_name"]
    finally:
        torch.compiler.set_default_backend(None)


def test_a_stance_can_force_the_backend() -> None:
    x = torch.ones(3, device=DEVICE)
    with torch.compiler.set_stance("default", force_backend="neuron"):
        assert_same(torch.compile(lambda t: t + 1)(x), x + 1)
    (record,) = torch_neuronx.get_dynamo_metrics()
    assert "_inductor_" not in record["graph_name"]


# shapes


def test_a_second_shape_is_a_second_static_program() -> None:
    compiled = compile_neuron(lambda x: x @ x.t(), dynamic=None)
    for size in (2, 3, 4, 2):
        x = torch.randn(size, 4, device=DEVICE)
        assert_same(compiled(x), x @ x.t())
    assert graph_count() == 3


def test_maybe_mark_dynamic_is_a_hint() -> None:
    compiled = compile_neuron(lambda x: x * 2)
    for size in (2, 3):
        x = torch.randn(size, 4, device=DEVICE)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        assert_same(compiled(x), x * 2)
    assert graph_count() == 2


def test_marked_dimensions_are_refused() -> None:
    x = torch.ones(3, 4, device=DEVICE)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(Exception, match="NCC_EMOD025"):
        compile_neuron(lambda t: t + 1)(x)


def test_marked_static_dimensions_are_fine() -> None:
    x = torch.ones(3, 4, device=DEVICE)
    torch._dynamo.mark_static(x, 0)
    torch._dynamo.mark_static_address(x)
    assert_same(compile_neuron(lambda t: t + 1)(x), x + 1)


# torch.export


@pytest.mark.parametrize("strict", [False, True])
@torch.no_grad()
def test_export_and_run(strict: bool) -> None:
    model, x = small_model(), torch.randn(3, 6, device=DEVICE)
    exported = torch.export.export(model, (x,), strict=strict).module()
    assert_same(exported(x), model(x))
    assert_same(compile_neuron(exported)(x), model(x), ulps=4)


@torch.no_grad()
def test_export_on_the_host_moved_to_the_device(tmp_path: Any) -> None:
    model, x = small_model().cpu(), torch.randn(3, 6)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (x,)), path)
    loaded = move_to_device_pass(torch.export.load(path), "neuron:0")
    on_device = loaded.module()
    check_close(on_device(x.to(DEVICE)).cpu(), model(x))
    check_close(compile_neuron(on_device)(x.to(DEVICE)).cpu(), model(x))


@torch.no_grad()
def test_export_saved_from_the_device(tmp_path: Any) -> None:
    model, x = small_model(), torch.randn(3, 6, device=DEVICE)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (x,)), path)
    assert_same(torch.export.load(path).module()(x), model(x))


# torch.compiler


def test_stance_force_eager() -> None:
    compiled, x = compile_neuron(lambda t: t + 1), torch.ones(3, device=DEVICE)
    with torch.compiler.set_stance("force_eager"):
        assert_same(compiled(x), x + 1)
    assert graph_count() == 0
    assert_same(compiled(x), x + 1)
    assert graph_count() == 1


def test_stance_fail_on_recompile() -> None:
    compiled = compile_neuron(lambda t: t + 1)
    compiled(torch.ones(2, device=DEVICE))
    with torch.compiler.set_stance("fail_on_recompile"):
        assert_same(compiled(torch.ones(2, device=DEVICE)), torch.full((2,), 2.0, device=DEVICE))
        with pytest.raises(RuntimeError, match="recompile"):
            compiled(torch.ones(3, device=DEVICE))
    assert graph_count() == 1


def test_stance_eager_on_recompile() -> None:
    compiled = compile_neuron(lambda t: t + 1)
    compiled(torch.ones(2, device=DEVICE))
    with torch.compiler.set_stance("eager_on_recompile"):
        assert_same(compiled(torch.ones(3, device=DEVICE)), torch.full((3,), 2.0, device=DEVICE))
    assert graph_count() == 1


def test_disabled_functions_run_eagerly() -> None:
    @torch.compiler.disable
    def outside(x: torch.Tensor) -> torch.Tensor:
        assert not torch.compiler.is_compiling()
        return x * 2

    x = torch.ones(3, device=DEVICE)
    assert_same(compile_neuron(lambda t: outside(t + 1) + 1, fullgraph=False)(x), torch.full((3,), 5.0, device=DEVICE))
    assert graph_count() == 2


def test_compile_can_be_switched_off() -> None:
    compiled = torch.compile(lambda t: t + 1, backend="neuron", disable=True)
    compiled(torch.ones(3, device=DEVICE))
    assert graph_count() == 0


def test_nested_compilation() -> None:
    inner = compile_neuron(lambda t: t * 3)
    outer = compile_neuron(lambda t: inner(t + 1) - 1)
    x = torch.ones(3, device=DEVICE)
    assert_same(outer(x), torch.full((3,), 5.0, device=DEVICE))
    assert_same(inner(x), torch.full((3,), 3.0, device=DEVICE))
    assert_same(compile_neuron(outer)(x), torch.full((3,), 5.0, device=DEVICE))


def test_compiled_submodules_of_a_compiled_module() -> None:
    model, x = small_model(), torch.randn(3, 6, device=DEVICE)
    expected = model(x)
    model[0] = torch.compile(model[0], backend="neuron")
    assert_same(compile_neuron(model)(x), expected, ulps=4)


def test_decorator_and_bound_methods() -> None:
    @torch.compile(backend="neuron", fullgraph=True)
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return x.relu() + 1

    class Holder:
        factor = 3

        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    x = torch.ones(3, device=DEVICE)
    assert_same(decorated(x), torch.full((3,), 2.0, device=DEVICE))
    assert_same(compile_neuron(Holder().scale)(x), torch.full((3,), 3.0, device=DEVICE))


def test_functional_transforms_inside() -> None:
    x = torch.randn(4, 3, device=DEVICE)
    check_close(compile_neuron(torch.func.grad(lambda t: (t**3).sum()))(x), 3 * x**2)
    check_close(compile_neuron(torch.func.vmap(lambda t: t / t.norm()))(x), x / x.norm(dim=1, keepdim=True))


def in_threads(count: int, call: Callable[[int], None]) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def body(index: int) -> None:
        try:
            barrier.wait(60)
            call(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors


def test_threads_share_a_compiled_function() -> None:
    compiled = compile_neuron(lambda x: (x @ x).relu().sum(0))

    def call(index: int) -> None:
        for size in (2, 3, 4):
            x = torch.randn(size, size, device=DEVICE)
            assert_same(compiled(x), (x @ x).relu().sum(0))

    in_threads(2, call)
    assert graph_count() <= 2 * 3


def test_threads_compile_functions_of_their_own() -> None:
    def call(index: int) -> None:
        x = torch.randn(3, 3, device=DEVICE)
        assert_same(compile_neuron(lambda t: t * index + 1)(x), x * index + 1)

    in_threads(4, call)


def test_options_of_the_call_reach_the_backend() -> None:
    compile_neuron(lambda t: t + 1, options={"model_name": "named"})(torch.ones(2, device=DEVICE))
    (record,) = torch_neuronx.get_dynamo_metrics()
    assert record["model_name"] == "named"
    assert counters["neuron"]["compiled_graphs"] == 1


@pytest.mark.filterwarnings("error")
@torch.no_grad()
def test_inductor_gives_views_without_complaints() -> None:
    x = torch.randn(4, 3, device=DEVICE)
    compiled = torch.compile(lambda t: ((t * 2).t(), t.t(), (t + 1)[1:]))
    for _ in range(2):
        assert_same(compiled(x), ((x * 2).t(), x.t(), (x + 1)[1:]))


def test_inductor_saves_views_of_its_inputs_for_the_backward() -> None:
    weight = torch.randn(3, 5, device=DEVICE, requires_grad=True)
    x = torch.randn(4, 3, device=DEVICE)
    torch.compile(lambda t, w: (t @ w).t().contiguous().relu().sum())(x, weight).backward()
    expected = torch.zeros_like(weight).requires_grad_()
    with torch.no_grad():
        expected.copy_(weight)
    (x @ expected).relu().sum().backward()
    check_close(weight.grad, expected.grad)
