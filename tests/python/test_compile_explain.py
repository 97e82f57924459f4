"""What users are told about a compilation: `torch_neuronx.explain`, its switch in the environment, and the dumps of every stage."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from compile_helpers import DEVICE, assert_same, compile_neuron, fresh_compiler  # noqa: F401 (an autouse fixture)
from torch import nn

import torch_neuronx

THIS_FILE = Path(__file__).name


def here(text: str) -> int:
    """The number of the one line of this file that ends with the text."""
    (number,) = [index for index, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith("# " + text)]
    return number


def one_layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ weight)  # the product


def test_a_graph_is_described() -> None:
    x, weight = torch.randn(4, 8, device=DEVICE), torch.randn(8, 16, device=DEVICE)
    found = torch_neuronx.explain(one_layer, x, weight)
    assert found.error is None and found.breaks == [] and found.recompilations == []
    (graph,) = found.graphs
    assert f'{THIS_FILE}", line {here("the product")}, in one_layer' in graph.place
    assert graph.flops == 2 * 4 * 8 * 16
    assert graph.input_bytes == (4 * 8 + 8 * 16) * 4
    assert 4 * 16 * 4 <= graph.peak_bytes <= 2 * 4 * 16 * 4
    assert graph.bytes >= graph.input_bytes + 4 * 16 * 4
    assert graph.instructions >= 1 and graph.nodes == 5
    assert len(graph.fused) + len(graph.calls) > 0


def test_the_report_is_readable() -> None:
    text = str(torch_neuronx.explain(one_layer, torch.randn(4, 8, device=DEVICE), torch.randn(8, 16, device=DEVICE)))
    assert text.startswith("1 graph, 0 graph breaks, 0 recompilations")
    for words in ("1.024 KFLOP", "in one_layer", "inputs 640 B", "instruction"):
        assert words in text, text
    assert max(map(len, text.splitlines())) < 400


def test_graph_breaks_have_the_users_line_and_a_reason() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()  # the break
        return y * 2

    found = torch_neuronx.explain(broken, torch.ones(3, device=DEVICE))
    assert len(found.graphs) == 2
    (place,) = found.breaks
    assert f'{THIS_FILE}", line {here("the break")}' in place.place and "graph_break()" in place.place
    assert "graph_break" in place.reason
    assert "Graph breaks:" in str(found)


def test_values_that_depend_on_data_break_the_graph() -> None:
    def choose(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # the choice
            return x + 1
        return x - 1

    (place,) = torch_neuronx.explain(choose, torch.ones(3, device=DEVICE)).breaks
    assert f"line {here('the choice')}" in place.place


def test_recompilations_have_a_reason() -> None:
    @torch.compiler.disable
    def twice(x: torch.Tensor) -> Any:
        return inner(x), inner(x[:2])

    inner = torch.compile(lambda t: t * 2, backend="neuron")
    found = torch_neuronx.explain(lambda t: (twice(t), t + 1), torch.ones(3, device=DEVICE))
    (again,) = found.recompilations
    assert "expected 3, actual 2" in again.reason and THIS_FILE in again.place


def test_training_shows_both_graphs() -> None:
    model = nn.Linear(4, 3).to(DEVICE)
    found = torch_neuronx.explain(model, torch.ones(2, 4, device=DEVICE))
    assert ["_forward_" in graph.name for graph in found.graphs] == [True, False]
    assert "_backward_" in found.graphs[1].name
    assert found.graphs[1].flops == 2 * 3 * 2 * 4


def test_why_instructions_are_calls() -> None:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x) + torch.rand_like(x)

    reasons = {call.opcode: call.reason for call in torch_neuronx.explain(mixed, torch.eye(3, device=DEVICE)).graphs[0].calls}
    assert "random numbers" in next(reason for opcode, reason in reasons.items() if "rand" in opcode)
    assert "no kernel of its own" in next(reason for opcode, reason in reasons.items() if "inv" in opcode or "linalg" in opcode)


def test_an_error_of_the_run_is_part_of_it() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y @ torch.ones(7, 7, device=x.device)

    found = torch_neuronx.explain(fails, torch.ones(2, 2, device=DEVICE))
    assert found.error is not None and "the run ended with" in str(found)
    assert len(found.graphs) == 1


def test_compiled_functions_can_be_explained_and_stay_compiled() -> None:
    x = torch.ones(3, device=DEVICE)
    compiled = compile_neuron(lambda t: t * 5)
    compiled(x)
    assert len(torch_neuronx.explain(compiled, x).graphs) == 1
    with torch.compiler.set_stance("fail_on_recompile"):
        assert_same(compiled(x), x * 5)
    model = torch.compile(nn.Linear(3, 2).to(DEVICE), backend="neuron")
    assert len(torch_neuronx.explain(model, x).graphs) == 2


def test_nothing_is_noted_afterwards() -> None:
    found = torch_neuronx.explain(lambda t: t + 1, torch.ones(3, device=DEVICE))
    compile_neuron(lambda t: t + 2)(torch.ones(3, device=DEVICE))
    assert len(found.graphs) == 1


def test_the_environment_asks_for_a_report(run_python: Any, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\ndef double(x):\n    return x * 2\ntorch.compile(double, backend='neuron')(torch.ones(3, device='neuron'))\n"
    )
    finished = run_python("import program", env={"TORCH_NEURONX_EXPLAIN": "1"}, cwd=tmp_path)
    assert "torch_neuronx: 1 graph, 0 graph breaks" in finished.stderr
    assert f'File "{tmp_path / "program.py"}", line 3, in double return x * 2' in finished.stderr


def test_no_report_without_being_asked(run_python: Any) -> None:
    finished = run_python("import torch; torch.compile(lambda x: x * 2, backend='neuron')(torch.ones(3, device='neuron'))")
    assert finished.stderr == ""


def test_dumps_of_every_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("RANK", "2")
    compile_neuron(one_layer, options={"model_name": "a/b"})(torch.randn(4, 8, device=DEVICE), torch.randn(8, 16, device=DEVICE))
    (graph,) = (tmp_path / "new" / "fx_graphs" / "proc_2").iterdir()
    assert graph.name.startswith("a_b_") and "torch.ops.aten.mm" in graph.read_text()
    (programs,) = (tmp_path / "new" / "programs" / "proc_2").iterdir()
    stages = sorted(path.name for path in programs.iterdir())
    assert stages[0] == "00_imported.txt" and re.fullmatch(r"\d\d_final.txt", stages[-1]) and len(stages) >= 4
    texts = [path.read_text() for path in sorted(programs.iterdir())]
    assert all(text.startswith('program "a/b_') for text in texts)
    assert "releases(" in texts[-1] and "releases(" not in texts[0]


def test_dumps_that_cannot_be_written_do_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path / "file" / "below"))
    x = torch.ones(3, device=DEVICE)
    assert_same(compile_neuron(lambda t: t + 1)(x), x + 1)


def test_preserved_artifacts_have_a_default_folder(run_python: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_neuronx.neuron_dynamo_backend import artifacts

    monkeypatch.delenv("TORCH_NEURONX_DEBUG_DIR", raising=False)
    assert artifacts.folder() is None
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    assert artifacts.folder() == Path("/tmp/neuron_backend")
