"""accelerate on ranks: `accelerate launch`, its configuration file, its own test scripts, object collectives, saved state."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list, gather_object

from .launch import ROOT, free_port, report, run_ranks, values
from .test_hf_examples import run

PROGRAM = ROOT / "tests" / "distributed" / "programs" / "accelerate_train.py"
LIMIT = 240

pytestmark = pytest.mark.extra


def launch(*options: str, timeout: float = 300) -> str:
    """Output of `accelerate launch`."""
    return run([sys.executable, "-m", "accelerate.commands.launch", "--main_process_port", str(free_port()), *options], timeout)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program gives in one process on the CPU, with the same global batch."""
    file = tmp_path_factory.mktemp("single") / "result.json"
    run([sys.executable, str(PROGRAM), str(file), "cpu"])
    return json.loads(file.read_text())


def check(result: dict[str, Any], single: dict[str, Any], ranks: int) -> None:
    assert result["type"] == "DistributedType.MULTI_NEURON"
    assert result["devices"] == [f"neuron:{rank}" for rank in range(ranks)]
    assert sum(result["losses"][-5:]) < 0.7 * sum(result["losses"][:5])
    assert result["losses"] == pytest.approx(single["losses"], rel=1e-5)
    for actual, expected in zip(result["weights"], single["weights"], strict=True):
        torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_launch_multi_gpu(tmp_path: Path, single: dict[str, Any]) -> None:
    """`accelerate launch --multi_gpu --num_processes 2`: the start that documentation gives for every accelerator."""
    file = tmp_path / "result.json"
    launch("--multi_gpu", "--num_processes", "2", str(PROGRAM), str(file))
    check(json.loads(file.read_text()), single, 2)


def test_launch_with_configuration_file(tmp_path: Path, single: dict[str, Any]) -> None:
    """The file that `accelerate config default` writes here names MULTI_NEURON and the cores; the launch obeys it."""
    config = tmp_path / "config.json"
    run([sys.executable, "-m", "accelerate.commands.accelerate_cli", "config", "default", "--config_file", str(config)])
    written = json.loads(config.read_text())
    assert written["distributed_type"] == "MULTI_NEURON"
    assert written["num_processes"] == torch.neuron.device_count()
    config.write_text(json.dumps({**written, "num_processes": 2}))
    file = tmp_path / "result.json"
    launch("--config_file", str(config), str(PROGRAM), str(file))
    check(json.loads(file.read_text()), single, 2)


def rank_script(rank: int, name: str) -> None:
    """One of the scripts that come with accelerate."""
    sys.argv = [name]
    importlib.import_module(f"accelerate.test_utils.scripts.{name}").main()


def rank_main_script(rank: int) -> None:
    """`test_script`, whose training checks ask for fp16 at last, which accelerate refuses for `neuron`; then what follows them."""
    from accelerate.test_utils.scripts import test_script as script

    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in"):
        script.main()
    AcceleratorState._reset_state()
    Accelerator()
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in"):
        script.training_check(use_seedable_sampler=True)
    AcceleratorState._reset_state()
    Accelerator()
    script.test_trigger()
    script.test_reinstantiated_state()


FOUR = pytest.param(4, marks=pytest.mark.xfail(strict=True, reason="accelerate 1.15: expects one of two rows on every rank"))


@pytest.mark.parametrize("ranks", [2, FOUR])
def test_own_main_script(ranks: int) -> None:
    """Process control, splitting, samplers, random numbers, data loaders, training in float32 and bfloat16."""
    outcomes = run_ranks(rank_main_script, ranks, timeout=LIMIT)
    assert all(outcome.ok for outcome in outcomes), report(outcomes)
    for text in (
        "Test split between processes",
        "All rng are properly synched",
        "same results on one CPU or distributed",
        "BF16 training check",
    ):
        assert text in outcomes[0].output


@pytest.mark.parametrize(
    ("script", "ranks"),
    [
        ("test_sync", 2),
        ("test_ops", 2),
        ("test_ops", 4),
        # It refuses other numbers than two.
        ("test_distributed_data_loop", 2),
    ],
)
def test_own_scripts(script: str, ranks: int) -> None:
    """Each of them asserts by itself; on every rank."""
    values(run_ranks(rank_script, ranks, script, timeout=LIMIT))


def rank_objects(rank: int) -> tuple[list[Any], list[Any], int]:
    """Objects of very different sizes there and back; memory that stays."""
    accelerator = Accelerator()
    mine = [{"rank": accelerator.process_index, "text": "x" * (10 ** (1 + 2 * accelerator.process_index))}]
    gathered = gather_object(mine)
    sent = broadcast_object_list([f"from {accelerator.process_index}", accelerator.process_index], from_process=1)
    before = torch.neuron.memory_allocated()
    for size in range(20):
        gather_object(["y" * (100 * size)])
    return [(entry["rank"], len(entry["text"])) for entry in gathered], sent, torch.neuron.memory_allocated() - before


def test_objects() -> None:
    for gathered, sent, grown in values(run_ranks(rank_objects, 3, timeout=LIMIT)):
        assert gathered == [(0, 10), (1, 1000), (2, 100000)]
        assert sent == ["from 1", 1]
        assert grown == 0


def rank_state(rank: int, folder: str, options: dict[str, str]) -> list[bool]:
    """Saves model, optimizer and random numbers, goes on, loads with `options`, goes on again."""
    accelerator = Accelerator()
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        accelerator.backward(model(torch.rand(2, 4, device=accelerator.device)).square().sum())
        optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()

    step()
    accelerator.save_state(folder)
    first = [step() for _ in range(3)]
    accelerator.load_state(folder, **options)
    return [torch.equal(a, b) for a, b in zip(first, [step() for _ in range(3)], strict=True)]


def test_saved_state(tmp_path: Path) -> None:
    """Each rank draws its own random numbers; after `load_state` every rank repeats its steps bit for bit."""
    options = {"map_location": "cpu"}
    assert all(all(same) for same in values(run_ranks(rank_state, 2, os.fspath(tmp_path), options, timeout=LIMIT)))


def test_saved_state_on_the_device(tmp_path: Path) -> None:
    """Without `map_location` accelerate asks safetensors for the device, which does not know it: docs/limits.md."""
    for outcome in run_ranks(rank_state, 2, os.fspath(tmp_path), {}, timeout=LIMIT):
        assert "device neuron" in outcome.error and "is invalid" in outcome.error, report([outcome])
