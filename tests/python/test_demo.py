"""The examples as a user runs them: each script in its own process, with a tiny budget, on `neuron`."""

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXT = EXAMPLES / "data" / "pride_and_prejudice.txt"
PROMPT = "Mr. Darcy was"


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def output_of(script: str, *arguments: str) -> str:
    result = run(script, *arguments)
    assert result.returncode == 0, f"{script} {' '.join(arguments)}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def report(output: str, name: str) -> str:
    """Return the text of the report's first row called `name`."""
    found = re.search(rf"^{name}\s+(.*)$", output, re.MULTILINE)
    assert found, f"no row {name!r} in:\n{output}"
    return found.group(1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model trained for four steps: its folder and what the training printed."""
    folder = tmp_path_factory.mktemp("demo") / "model"
    return folder, output_of("train_tiny.py", "--steps", "4", "--output", str(folder))


class TestText:
    def test_is_plain_and_large_enough(self) -> None:
        text = TEXT.read_text(encoding="utf-8")
        assert 100_000 <= len(text) <= 1_500_000
        assert "\r" not in text
        assert "gutenberg" not in text.lower()

    def test_provenance_names_this_file(self) -> None:
        assert hashlib.sha256(TEXT.read_bytes()).hexdigest() in (EXAMPLES / "data" / "README.md").read_text(encoding="utf-8")


class TestTrainTiny:
    def test_trains_on_the_device(self, trained: tuple[Path, str]) -> None:
        folder, output = trained
        record = json.loads((folder / "training.json").read_text())
        assert record["device"] == "neuron:0"
        assert record["steps"] == 4
        assert record["last_loss"] < record["first_loss"]
        assert report(output, "device") == "Trainer: neuron:0, model: neuron:0"

    def test_leaves_a_complete_model_and_nothing_else(self, trained: tuple[Path, str]) -> None:
        folder, _ = trained
        assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= {
            path.name for path in folder.iterdir()
        }
        assert [path.name for path in folder.parent.iterdir()] == ["model"]
        with safe_open(folder / "model.safetensors", "pt") as weights:
            assert all(weights.get_tensor(name).isfinite().all() for name in weights.keys())  # noqa: SIM118 (not a dict)

    def test_is_not_repeated_until_something_changes(self, trained: tuple[Path, str], tmp_path: Path) -> None:
        folder = Path(shutil.copytree(trained[0], tmp_path / "model"))
        before = (folder / "model.safetensors").stat().st_mtime_ns
        assert "the demo model is made" not in output_of("train_tiny.py", "--steps", "4", "--output", str(folder))
        assert (folder / "model.safetensors").stat().st_mtime_ns == before
        assert "the demo model is made again" in output_of("train_tiny.py", "--steps", "1", "--output", str(folder))
        assert (folder / "model.safetensors").stat().st_mtime_ns != before

    def test_does_not_touch_a_folder_of_something_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLES))
        train_tiny = importlib.import_module("train_tiny")
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(SystemExit, match="is not a model made by train_tiny"):
            train_tiny.ensure_model(tmp_path, train_tiny.Settings(steps=1), retrain=True)
        assert (tmp_path / "thesis.txt").read_text() == "years of work"

    def test_time_limit_ends_training(self, tmp_path: Path) -> None:
        output = output_of("train_tiny.py", "--steps", "100000", "--seconds", "2", "--output", str(tmp_path / "model"))
        assert "time limit of 2 s reached" in output
        assert "--retrain --seconds" in report(output, "note")
        assert json.loads((tmp_path / "model" / "training.json").read_text())["steps"] < 100000


class TestGenerate:
    def test_compiles_by_itself_and_says_what_ran_where(self, trained: tuple[Path, str]) -> None:
        output = output_of("generate.py", "--model", str(trained[0]), "--prompt", PROMPT, "--max-new-tokens", "12")
        assert report(output, "model").endswith("bfloat16 on neuron:0")
        parameters = re.search(r"[\d,]+ parameters", report(trained[1], "model"))
        assert parameters, "the training does not say how many parameters there are"
        assert parameters.group() in report(output, "model"), "input and output embedding were no longer tied when the model was saved"
        assert report(output, "inputs").endswith("on cpu")
        assert report(output, "output").endswith("on cpu")
        assert report(output, "compiled") == "1 graph(s) of the decode step by the backend neuron"
        assert re.search(r"compiled +[\d.]+ tokens/s \([\d.]+ x eager, 0 graphs compiled again\)", output)
        assert re.search(r"eager +[\d.]+ tokens/s", output)
        text = output.partition("\n\n")[2]
        assert text.startswith(PROMPT)
        assert len(text.strip()) > len(PROMPT)

    def test_without_compiler_the_text_is_made_by_zero_graphs(self, trained: tuple[Path, str]) -> None:
        output = output_of(
            "generate.py", "--model", str(trained[0]), "--prompt", PROMPT, "--max-new-tokens", "4", "--no-compile", "--sample"
        )
        assert report(output, "compiled").startswith("0 graphs")
        assert output.partition("\n\n")[2].startswith(PROMPT)

    def test_without_the_device_it_ends_and_says_why(self, trained: tuple[Path, str]) -> None:
        result = run("generate.py", "--model", str(trained[0]), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        assert result.returncode != 0
        assert "PyTorch did not load the device 'neuron'" in result.stderr


class TestTrain:
    def test_forward_and_backward_are_compiled_once(self, trained: tuple[Path, str], tmp_path: Path) -> None:
        output = output_of(
            "train.py", "--model", str(trained[0]), "--steps", "3", "--batch", "2", "--length", "32", "--output", str(tmp_path / "tuned")
        )
        assert report(output, "model").endswith("on neuron:0")
        assert report(output, "trainer") == "device neuron:0, bf16 autocast, torch.compile backend 'neuron'"
        graphs = re.fullmatch(r"(\d+) graphs in all, 0 of them after the first step", report(output, "compiled"))
        assert graphs
        assert int(graphs.group(1)) >= 2
        assert (tmp_path / "tuned" / "model.safetensors").is_file()
