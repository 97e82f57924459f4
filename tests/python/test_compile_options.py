"""Modes, options, environment variables, metrics, the in-memory cache, and tensors left on the CPU."""

import csv
import logging
import os
from pathlib import Path
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

import torch_neuronx
from torch_neuronx.neuron_dynamo_backend import cache_statistics, settings


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def messages(caplog: pytest.LogCaptureFixture, call: Any) -> list[str]:
    with caplog.at_level(logging.WARNING, logger="torch_neuronx.compile"):
        call()
    return [record.getMessage() for record in caplog.records if record.name == "torch_neuronx.compile"]


def test_backend_is_listed() -> None:
    assert "neuron" in torch._dynamo.list_backends()


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_other_modes_warn_once_and_act_as_default(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    settings._warned.discard(f"mode {mode}")

    def call() -> None:
        for function in (add_one, lambda x: x + 1):
            assert_same(compile_neuron(function, mode=mode)(torch.zeros(2, device=DEVICE)), torch.ones(2, device=DEVICE))

    (message,) = messages(caplog, call)
    assert mode in message and "default" in message


def test_default_mode_and_known_options_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    options = {"model_name": "m", "dynamic": False, "use_tensorizer_backend": True, "fallback_execution": False}
    assert messages(caplog, lambda: compile_neuron(add_one, options=options)(torch.zeros(2, device=DEVICE))) == []
    torch._dynamo.reset()
    assert messages(caplog, lambda: compile_neuron(add_one, mode="default")(torch.zeros(2, device=DEVICE))) == []


def test_unknown_options_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    settings._warned.discard("option compiler_args")

    def call() -> None:
        for function in (add_one, lambda x: x + 1):
            compile_neuron(function, options={"compiler_args": "-O1"})(torch.zeros(2, device=DEVICE))

    (message,) = messages(caplog, call)
    assert "compiler_args" in message and "model_name" in message


def test_options_of_the_wrong_type() -> None:
    with pytest.raises(Exception, match="'model_name' of backend 'neuron' is a str"):
        compile_neuron(add_one, options={"model_name": 3})(torch.zeros(2, device=DEVICE))


def test_metrics_of_a_training_step() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(DEVICE)
    compile_neuron(model, options={"model_name": "mlp"})(torch.ones(2, 4, device=DEVICE)).sum().backward()
    with torch.no_grad():
        compile_neuron(add_one)(torch.zeros(2, device=DEVICE))
    forward, backward, inference = torch_neuronx.get_dynamo_metrics()
    assert set(forward) == {
        "graph_id",
        "graph_name",
        "model_name",
        "has_collectives",
        "graph_node_count",
        "timestamp",
        "torch_neuronx_fx_passes_us",
        "torch_neuronx_lower_us",
        "torch_neuronx_compile_us",
    }
    for record, kind, model_name in ((forward, "forward", "mlp"), (backward, "backward", "mlp"), (inference, "inference", "model")):
        assert record["graph_name"].startswith(f"{model_name}_") and f"_{kind}_" in record["graph_name"]
        assert record["model_name"] == model_name
        assert record["has_collectives"] is False
        assert record["graph_node_count"] > 2
        assert record["torch_neuronx_compile_us"] >= 0
        assert len(record["graph_id"]) == 32
    assert len({forward["graph_id"], backward["graph_id"], inference["graph_id"]}) == 3
    assert counters["neuron"]["compiled_graphs"] == 3
    assert counters["neuron"]["graphs_with_collectives"] == 0
    torch_neuronx.reset_dynamo_metrics()
    assert torch_neuronx.get_dynamo_metrics() == []


def test_metric_table_at_exit(tmp_path: Path, run_python: Any) -> None:
    run_python(
        """
        import torch
        torch.compile(lambda x: x + 1, backend="neuron")(torch.zeros(2, device="neuron"))
        """,
        env={"TORCH_NEURONX_ENABLED_METRIC_TABLES": "graph_stats,other", "TORCH_NEURONX_METRICS_DIR": str(tmp_path / "new"), "RANK": "3"},
    )
    with (tmp_path / "new" / "metric_table_graph_stats_rank3.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["model_name"] == "model" and int(row["graph_node_count"]) == 3


def test_no_metric_table_unless_asked(tmp_path: Path, run_python: Any) -> None:
    run_python("import torch, torch_neuronx; torch_neuronx.get_dynamo_metrics()", env={"TORCH_NEURONX_METRICS_DIR": str(tmp_path)})
    assert os.listdir(tmp_path) == []


def test_importing_torch_does_not_import_the_compiler(run_python: Any) -> None:
    run_python(
        "import sys, torch; assert 'torch._dynamo' not in sys.modules; assert 'torch_neuronx.neuron_dynamo_backend' not in sys.modules"
    )


def test_equal_graphs_share_one_program() -> None:
    before = cache_statistics()
    x = torch.zeros(7, device=DEVICE)
    for function in (lambda t: (t + 1) * 3, lambda t: (t + 1) * 3):
        compile_neuron(function)(x)
    torch._dynamo.reset()
    compile_neuron(lambda t: (t + 1) * 3)(x)
    compile_neuron(lambda t: (t + 1) * 4)(x)
    after = cache_statistics()
    assert after["TotalCompilations"] - before["TotalCompilations"] == 2
    assert after["InMemoryHits"] - before["InMemoryHits"] == 2
    assert after["InMemoryMisses"] - before["InMemoryMisses"] == 2
    ids = [record["graph_id"] for record in torch_neuronx.get_dynamo_metrics()]
    assert ids[0] == ids[1] == ids[2] != ids[3]


def test_constants_are_part_of_the_key() -> None:
    def with_constants(value: float) -> torch.Tensor:
        constant = torch.full((3,), value, device=DEVICE)
        return compile_neuron(lambda t: t + torch.tensor([value, 0.0, 0.0], device=DEVICE) + constant)(torch.zeros(3, device=DEVICE))

    results = [with_constants(1.0), with_constants(2.0)]
    assert_same(results[0], torch.tensor([2.0, 1.0, 1.0], device=DEVICE))
    assert_same(results[1], torch.tensor([4.0, 2.0, 2.0], device=DEVICE))


def test_cache_limit(run_python: Any) -> None:
    run_python(
        """
        import torch
        from torch_neuronx.neuron_dynamo_backend import cache_statistics
        x = torch.zeros(2, device="neuron")
        for n in range(4):
            torch.compile(lambda t: t + n, backend="neuron")(x)
        assert cache_statistics()["Evictions"] == 2, cache_statistics()
        """,
        env={"NEURON_COMPILATION_CACHE_MAX_ENTRIES": "2"},
    )


def test_bad_cache_limit_is_named(run_python: Any) -> None:
    result = run_python(
        "import torch; torch.compile(lambda t: t + 1, backend='neuron')(torch.zeros(2, device='neuron'))",
        env={"NEURON_COMPILATION_CACHE_MAX_ENTRIES": "many"},
        check=False,
    )
    assert result.returncode != 0
    assert "NEURON_COMPILATION_CACHE_MAX_ENTRIES" in result.stderr and "many" in result.stderr


@torch.no_grad()
def test_host_inputs_of_a_device_model_are_copied() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 3)).to(DEVICE)
    tokens = torch.tensor([[1, 2, 3]])
    result = compile_neuron(model)(tokens)
    assert result.device == DEVICE
    assert_same(result, model(tokens.to(DEVICE)))


def test_host_inputs_of_a_trained_device_model_are_copied() -> None:
    weight = torch.ones(3, 2, device=DEVICE, requires_grad=True)
    compile_neuron(lambda x, w: (x.to(w.dtype) @ w).sum())(torch.tensor([[1, 2, 3]]), weight).backward()
    assert_same(weight.grad, torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], device=DEVICE))


def test_a_model_on_the_host_runs_on_the_device() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    x = torch.randn(3, 4)
    expected = model(x)
    expected.sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    mean = model[1].running_mean.clone()
    model.zero_grad()
    model[1].reset_running_stats()
    torch_neuronx.clear_op_tracking()
    result = compile_neuron(model)(x)
    result.sum().backward()
    assert result.device.type == "cpu"
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], gradients)
    torch.testing.assert_close(model[1].running_mean, mean)
    assert "aten::native_batch_norm_backward" in torch_neuronx.get_executed_ops()


def test_moving_inside_the_graph_both_ways() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = (x + 1).to(w.device)
        return y @ w, (y @ w).cpu() * 2

    x, w = torch.ones(2, 2), torch.ones(2, 2, device=DEVICE)
    result = compile_neuron(function)(x, w)
    assert_same(result, function(x, w))
    assert result[0].device == DEVICE and result[1].device.type == "cpu"


@pytest.mark.parametrize("value", ["1", "true", "TRUE"])
def test_host_inputs_can_be_forbidden(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", value)
    weight = torch.ones(2, 2, device=DEVICE)
    with pytest.raises(Exception, match="Input tensor at index 1 is on cpu device"):
        compile_neuron(lambda w, x: w @ x)(weight, torch.ones(2, 2))
    assert_same(compile_neuron(lambda w, s: w * s)(weight, torch.tensor(3.0)), weight * 3)


def test_bad_boolean_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "maybe")
    with pytest.raises(Exception, match="TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY='maybe' is not valid: expected 0, 1, true or false"):
        compile_neuron(add_one)(torch.zeros(2, device=DEVICE))


@pytest.fixture
def broken_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilation fails, as it does for a graph that the compiler cannot take."""
    from torch_neuronx.neuron_dynamo_backend import backend

    def fail(self: Any, *args: Any) -> None:
        raise NotImplementedError("the operator test::missing is not registered")

    monkeypatch.setattr(backend.GraphReader, "read", fail)


@pytest.mark.usefixtures("broken_reader")
def test_a_failed_compilation_raises_by_default() -> None:
    with pytest.raises(Exception, match="the operator test::missing is not registered"):
        compile_neuron(add_one)(torch.zeros(2, device=DEVICE))


@pytest.mark.usefixtures("broken_reader")
@pytest.mark.parametrize("how", ["option", "environment"])
def test_fallback_execution(how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    if how == "environment":
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    options = {"fallback_execution": True} if how == "option" else {}
    x = torch.ones(3, device=DEVICE, requires_grad=True)

    def call() -> None:
        compile_neuron(lambda t: (t * t).sum(), options=options)(x).backward()

    assert any("test::missing" in message for message in messages(caplog, call))
    assert_same(x.grad, 2 * x.detach())
    assert graph_count() == 0


@pytest.mark.usefixtures("broken_reader")
def test_the_option_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    with pytest.raises(Exception, match="test::missing"):
        compile_neuron(add_one, options={"fallback_execution": False})(torch.zeros(2, device=DEVICE))


def test_dynamo_knows_the_device() -> None:
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("neuron")
    assert interface.device_count() == torch.neuron.device_count()
    assert interface.current_device() == 0
    with interface.device(1):
        assert interface.current_device() == 1
    assert get_interface_for_device("neuron:1") is interface
    assert interface.is_bf16_supported() and not interface.is_triton_capable()
    interface.synchronize()


def test_collectives_are_noticed() -> None:
    from torch_neuronx.neuron_dynamo_backend.graph_reader import has_collectives

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    assert not has_collectives(graph)
    graph.call_function(torch.ops._c10d_functional.all_reduce.default, (x, "sum", "0"))
    assert has_collectives(graph)


@torch.no_grad()
def test_host_values_computed_inside_the_graph_are_copied() -> None:
    weight, tokens = torch.arange(12.0).reshape(6, 2).to(DEVICE), torch.tensor([0, 2])
    compiled = compile_neuron(lambda w, t: (torch.nn.functional.embedding(t + 1, w), w[t], w.mul(t.to(torch.float32))))
    embedded, indexed, product = compiled(weight, tokens)
    assert_same(embedded, weight[[1, 3]])
    assert_same(indexed, weight[[0, 2]])
    assert_same(product, weight * torch.tensor([0.0, 2.0], device=DEVICE))


@torch.no_grad()
def test_a_host_tensor_that_is_written_is_copied_after_the_write() -> None:
    def function(x: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        first = x + host
        host.add_(1)
        return first + host

    x, host = torch.ones(2, device=DEVICE), torch.zeros(2)
    assert_same(compile_neuron(function)(x, host), torch.full((2,), 2.0, device=DEVICE))
    assert_same(host, torch.ones(2))


def test_two_cores_in_one_operator_are_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"neuron:0.*neuron:1|neuron:1.*neuron:0"):
        compile_neuron(lambda a, b: a + b)(torch.ones(2, device="neuron:0"), torch.ones(2, device="neuron:1"))


def test_a_device_without_index_is_the_current_core() -> None:
    compiled = compile_neuron(lambda: torch.ones(2, device="neuron"))
    assert compiled().device == DEVICE
    with torch.neuron.device(1):
        assert compiled().device == torch.device("neuron", 1)
