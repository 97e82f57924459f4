"""Compiled programs that outlive the process: the cache folder, and PyTorch's cache of AOTAutograd results."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from compile_helpers import DEVICE, assert_same, compile_neuron, fresh_compiler  # noqa: F401 (an autouse fixture)

# Compiles a model and a training step, and prints the counters of the caches.
PROGRAM = """
import json, sys, torch
from torch._dynamo.utils import counters
from torch_neuronx.neuron_dynamo_backend import cache_statistics
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).to("neuron")
x = torch.ones(2, 4, device="neuron")
expected = model(x)
expected.square().sum().backward()
gradients = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
compiled = torch.compile(model, backend="neuron")
result = compiled(x)
assert torch.equal(result, expected), (result, expected)
result.square().sum().backward()
for p, gradient in zip(model.parameters(), gradients):
    torch.testing.assert_close(p.grad, gradient)
constant = torch.compile(lambda t: t * torch.tensor([1.0, 2.0], device="neuron"), backend="neuron")
assert constant(torch.ones(2, device="neuron")).tolist() == [1.0, 2.0]
found = dict(cache_statistics(), **counters["aot_autograd"], graphs=counters["neuron"]["compiled_graphs"])
print(json.dumps(found))
"""


def run(run_python: Any, folder: Path, **env: str) -> tuple[dict[str, int], str]:
    import json

    finished = run_python(
        PROGRAM, env={"TORCH_NEURONX_NEFF_CACHE_DIR": str(folder / "neff"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"), **env}
    )
    return json.loads(finished.stdout.splitlines()[-1]), finished.stderr


def programs(folder: Path) -> list[Path]:
    return sorted((folder / "neff").glob("*.program"))


def test_a_second_process_finds_the_programs(run_python: Any, tmp_path: Path) -> None:
    first, _ = run(run_python, tmp_path)
    assert (first["PersistentHits"], first["PersistentMisses"], first["graphs"]) == (0, 3, 3)
    assert len(programs(tmp_path)) == 3
    second, stderr = run(run_python, tmp_path)
    assert (second["PersistentHits"], second["PersistentMisses"], second["graphs"]) == (3, 0, 3)
    assert stderr == ""


@pytest.mark.parametrize("name", ["TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE"])
def test_the_cache_can_be_switched_off(run_python: Any, tmp_path: Path, name: str) -> None:
    found, _ = run(run_python, tmp_path, **{name: "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"})
    assert found["PersistentMisses"] == 0 and "autograd_cache_miss" not in found
    assert not (tmp_path / "neff").exists()


def test_a_damaged_entry_is_reported_and_replaced(run_python: Any, tmp_path: Path) -> None:
    run(run_python, tmp_path)
    damaged = programs(tmp_path)[1]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    found, stderr = run(run_python, tmp_path)
    assert (found["PersistentHits"], found["PersistentMisses"]) == (2, 1)
    assert stderr.count(str(damaged)) == 1 and "compiled again and replaced" in stderr
    assert damaged.read_bytes() == whole


def test_an_entry_that_is_whole_but_wrong_is_replaced(run_python: Any, tmp_path: Path) -> None:
    """Two entries under each other's names, with the header of the right one: digests cannot tell, the program does not fit."""
    run(run_python, tmp_path)
    entries = programs(tmp_path)
    contents = [entry.read_bytes() for entry in entries]
    for entry, other in zip(entries, contents[1:] + contents[:1], strict=True):
        entry.write_bytes(other.replace(b"key ", b"key ", 1))
    found, stderr = run(run_python, tmp_path)
    assert found["PersistentHits"] == 0
    assert "is the entry of another program" in stderr
    assert [entry.read_bytes() for entry in entries] == contents


def test_a_bad_limit_is_named(run_python: Any, tmp_path: Path) -> None:
    finished = run_python(
        "import torch; torch.compile(lambda t: t + 1, backend='neuron')(torch.zeros(2, device='neuron'))",
        env={"SOFTNEURON_NEFF_CACHE_BYTES": "much", "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path)},
        check=False,
    )
    assert finished.returncode != 0 and "SOFTNEURON_NEFF_CACHE_BYTES" in finished.stderr


def test_a_limit_is_kept(run_python: Any, tmp_path: Path) -> None:
    run_python(
        """
        import torch
        for n in range(6):
            torch.compile(lambda t: t + n, backend="neuron")(torch.zeros(2, device="neuron"))
        """,
        env={"SOFTNEURON_NEFF_CACHE_BYTES": "2K", "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff")},
    )
    sizes = [entry.stat().st_size for entry in programs(tmp_path)]
    assert 1 <= len(sizes) < 6 and sum(sizes) <= 2048


def test_the_key_depends_on_graph_constants_and_device(run_python: Any, tmp_path: Path) -> None:
    run_python(
        """
        import torch
        from torch_neuronx.neuron_dynamo_backend import cache_statistics
        def distinct(function, *args):
            before = cache_statistics()["PersistentMisses"]
            torch.compile(function, backend="neuron")(*args)
            assert cache_statistics()["PersistentMisses"] == before + 1, function
        x = torch.zeros(2, device="neuron")
        distinct(lambda t: t + 1, x)
        distinct(lambda t: t + 2, x)
        distinct(lambda t: t + 1, torch.zeros(3, device="neuron"))
        distinct(lambda t: t + 1, torch.zeros(2, device="neuron:1"))
        distinct(lambda t: t + 1, torch.zeros(2, device="neuron", dtype=torch.bfloat16))
        distinct(lambda t: t + torch.tensor([1.0, 2.0]), torch.zeros(2))
        distinct(lambda t: t + torch.tensor([1.0, 3.0]), torch.zeros(2))
        torch.neuron.set_device(1)
        distinct(lambda t: t + torch.tensor([1.0, 3.0]), torch.zeros(2))
        """,
        env={"TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path)},
    )


def test_an_entry_is_readable(tmp_path: Path, run_python: Any) -> None:
    run(run_python, tmp_path)
    text = programs(tmp_path)[0].read_text()
    assert text.startswith("softneuron-program 1\nbuild softneuron ")
    assert "\nprogram " in text and "aten::" in text


# PyTorch's cache of AOTAutograd results


def test_a_warm_process_skips_aotautograd(run_python: Any, tmp_path: Path) -> None:
    first, _ = run(run_python, tmp_path, TORCHINDUCTOR_AUTOGRAD_CACHE="1")
    assert (first["autograd_cache_miss"], first["autograd_cache_saved"]) == (2, 2)
    second, stderr = run(run_python, tmp_path, TORCHINDUCTOR_AUTOGRAD_CACHE="1")
    assert second["autograd_cache_hit"] == 2 and "autograd_cache_miss" not in second
    assert second["graphs"] == 3 and second["TotalCompilations"] == 3
    assert stderr == ""


def test_small_graphs_are_traced_anew(run_python: Any, tmp_path: Path) -> None:
    found, _ = run(run_python, tmp_path)
    assert not any(name.startswith("autograd_cache") for name in found)
    assert not (tmp_path / "torch" / "aotautograd").exists()


def test_damaged_results_of_aotautograd_are_traced_anew(run_python: Any, tmp_path: Path) -> None:
    run(run_python, tmp_path, TORCHINDUCTOR_AUTOGRAD_CACHE="1")
    entries = [path for path in (tmp_path / "torch" / "aotautograd").rglob("*") if path.is_file()]
    assert len(entries) == 2
    for index, path in enumerate(entries):
        content = path.read_bytes()
        path.write_bytes(b"nonsense" if index else content[: len(content) // 2])
    found, _ = run(run_python, tmp_path, TORCHINDUCTOR_AUTOGRAD_CACHE="1")
    assert "autograd_cache_hit" not in found and found["graphs"] == 3


def test_other_builds_settings_and_cores_have_results_of_their_own(run_python: Any, tmp_path: Path) -> None:
    code = """
        import torch
        from torch._dynamo.utils import counters
        for core in (0, 1):
            torch.neuron.set_device(core)
            for name in ("a", "b"):
                torch._dynamo.reset()
                result = torch.compile(lambda: torch.ones(2, device="neuron") * 2, backend="neuron", options={"model_name": name})()
                assert result.device.index == core, result.device
        print(counters["aot_autograd"]["autograd_cache_miss"], counters["aot_autograd"]["autograd_cache_hit"])
    """
    env = {
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"),
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff"),
    }
    assert run_python(code, env=env).stdout.split() == ["4", "0"]
    assert run_python(code, env=env).stdout.split() == ["0", "4"]


def test_shapes_in_another_order(run_python: Any, tmp_path: Path) -> None:
    code = """
        import sys, torch
        from torch._dynamo.utils import counters
        compiled = torch.compile(lambda x: (x * x.shape[0]).view(x.shape[0] * 2, -1).sum(1), backend="neuron")
        for size in {sizes}:
            x = torch.randn(size, 4, device="neuron")
            assert torch.equal(compiled(x), (x * size).view(size * 2, -1).sum(1)), size
        print(counters["neuron"]["compiled_graphs"])
    """
    env = {
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"),
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff"),
    }
    for sizes in ((2, 3, 5), (5, 3, 2, 7), (7, 2, 3, 5)):
        assert run_python(code.format(sizes=sizes), env=env).stdout.split() == [str(len(sizes))]


def test_artifacts_go_to_another_machine(run_python: Any, tmp_path: Path) -> None:
    """What `save_cache_artifacts` gives is enough for a process with empty folders."""
    save = PROGRAM + f"\nopen({str(tmp_path / 'artifacts')!r}, 'wb').write(torch.compiler.save_cache_artifacts()[0])\n"
    load = f"import torch; torch.compiler.load_cache_artifacts(open({str(tmp_path / 'artifacts')!r}, 'rb').read())\n" + PROGRAM
    import json

    for index, (code, hits) in enumerate(((save, 0), (load, 2))):
        env = {
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"torch{index}"),
            "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / f"neff{index}"),
        }
        found = json.loads(run_python(code, env=env).stdout.splitlines()[-1])
        assert found.get("autograd_cache_hit", 0) == hits, found
        assert found["graphs"] == 3


def test_graphs_that_call_python_are_compiled_each_time(run_python: Any, tmp_path: Path) -> None:
    code = """
        import torch
        from torch._dynamo.utils import counters
        from torch.utils.checkpoint import checkpoint
        x = torch.randn(4, 4, device="neuron", requires_grad=True)
        def step(t):
            return checkpoint(lambda u: torch.nn.functional.dropout(u, 0.5).sin(), t, use_reentrant=False)
        torch.compile(step, backend="neuron")(x).sum().backward()
        print(counters["aot_autograd"]["autograd_cache_hit"])
    """
    env = {
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"),
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neff"),
    }
    for _ in range(2):
        finished = run_python(code, env=env)
        assert finished.stdout.split() == ["0"]


def test_hits_are_recorded_in_the_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch_neuronx

    monkeypatch.setenv("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.ones(3, device=DEVICE)
    with caplog.at_level(logging.INFO, logger="torch_neuronx.compile"):
        for _ in range(2):
            torch._dynamo.reset()
            assert_same(compile_neuron(lambda t: t * 7 - 1)(x), torch.full((3,), 6.0, device=DEVICE))
    first, second = torch_neuronx.get_dynamo_metrics()
    assert first["graph_id"] == second["graph_id"]
    assert second["torch_neuronx_fx_passes_us"] == second["torch_neuronx_lower_us"] == 0
    assert second["timestamp"] > first["timestamp"]
    assert "cached" in caplog.messages[-1]
    assert os.listdir(tmp_path)


def test_backward_may_run_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also with PyTorch's cache, which graphs of some size use by themselves."""
    monkeypatch.setenv("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = compile_neuron(lambda t: (t.sin() * t.exp()).sum())(x)
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert_same(x.grad, 2 * first)
