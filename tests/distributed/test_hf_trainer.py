"""`Trainer` on ranks: a model spread by `DistributedConfig`, plain DDP, FSDP2 by `fsdp_config`; eager and compiled.

The reference is a `Trainer` in one process with the same global batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, PreTrainedModel, Trainer, TrainingArguments, default_data_collator
from transformers.distributed.configuration_utils import DistributedConfig

from .launch import run_ranks, values
from .models import BATCH, STEPS, batches, furthest, save

LIMIT = 180
Run = tuple[list[float], list[float], dict[str, torch.Tensor]]
# How a run is spread: ranks, ranks that see different batches, arguments of DistributedConfig, of TrainingArguments.
MODES: dict[str, tuple[int, int, dict[str, Any], dict[str, Any]]] = {
    "ddp": (2, 2, {}, {}),
    "tp": (2, 1, {"tp_size": 2}, {}),
    "fsdp": (2, 2, {"fsdp_size": 2}, {}),
    "tp-fsdp": (4, 2, {"tp_size": 2, "fsdp_size": 2}, {}),
    "ep": (2, 1, {"tp_size": 2, "ep_size": 2}, {}),
    "ep-fsdp": (2, 2, {"fsdp_size": 2, "ep_size": 2}, {}),
    "fsdp-config": (
        2,
        2,
        {},
        {"fsdp": True, "fsdp_config": {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": True}},
    ),
}


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """The sequences of all batches, one after the other, without padding."""

    def __init__(self) -> None:
        self.tokens = batches().flatten(0, 1)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index].clone()}


def make_trainer(model: PreTrainedModel, output: Path, rows: int, **arguments: Any) -> Trainer:
    """A `Trainer` that logs every step."""
    defaults = {
        "max_steps": STEPS,
        "per_device_train_batch_size": rows,
        "learning_rate": 2e-3,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 0,
    }
    return Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(output), **{**defaults, **arguments}),
        train_dataset=Rows(),
        data_collator=default_data_collator,
    )


def curve(trainer: Trainer, key: str) -> list[float]:
    """The values logged under `key`."""
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def rank_trains(rank: int, checkpoint: Path, mode: str, output: Path, compiled: bool) -> dict[str, Any]:
    """Trains and saves as every user does."""
    _, data, sizes, own = MODES[mode]
    options = {"distributed_config": DistributedConfig(**sizes)} if sizes else {}
    model = AutoModelForCausalLM.from_pretrained(checkpoint, **options)
    trainer = make_trainer(model, output, BATCH // data, torch_compile=compiled, **own)
    assert trainer.args.device == torch.device("neuron", rank)
    trainer.train()
    assert dist.get_backend() == "neuron"
    trainer.save_model()
    return {"loss": curve(trainer, "loss"), "norm": curve(trainer, "grad_norm"), "graphs": graphs()}


def graphs() -> int:
    """Graphs that the backend compiled in this process."""
    return int(torch._dynamo.utils.counters["neuron"]["compiled_graphs"])


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the saved models, made when first asked for."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def single_process(checkpoints: Path) -> Callable[[str], Run]:
    """Losses, gradient norms and weights of one process, by name of the model."""

    @functools.cache
    def run(name: str) -> Run:
        model = AutoModelForCausalLM.from_pretrained(save(name, checkpoints))
        trainer = make_trainer(model, checkpoints / "single", BATCH, use_cpu=True)
        trainer.train()
        return curve(trainer, "loss"), curve(trainer, "grad_norm"), model.state_dict()

    return run


def check(results: list[dict[str, Any]], saved: Path, reference: Run) -> None:
    """Rank 0 logged the reference's losses and norms, and saved its weights."""
    losses, norms, weights = reference
    assert len(losses) == STEPS
    assert losses[-1] < 0.95 * losses[0], "nothing was learnt: this comparison proves little"
    for result in results:
        assert result["loss"] == pytest.approx(losses, rel=1e-5)
        assert result["norm"] == pytest.approx(norms, rel=1e-4)
    trained = AutoModelForCausalLM.from_pretrained(saved).state_dict()
    far, where = furthest(trained, weights)
    # The bits of a matrix product depend on how many rows it has, and experts see other numbers of rows.
    assert far < 5e-5, f"{where} is {far:.1e} away from one process's"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("qwen3", "ddp"),
        ("qwen3", "tp"),
        ("qwen3", "fsdp"),
        ("qwen3", "tp-fsdp"),
        ("qwen3", "fsdp-config"),
        ("mixtral", "ep"),
        ("qwen3_moe", "ep-fsdp"),
    ],
)
def test_trainer_equals_one_process(name: str, mode: str, checkpoints: Path, tmp_path: Path, single_process: Callable[[str], Run]) -> None:
    """20 steps in float32: losses, gradient norms and saved weights are one process's."""
    results = values(run_ranks(rank_trains, MODES[mode][0], save(name, checkpoints), mode, tmp_path, False, timeout=LIMIT))
    check(results, tmp_path, single_process(name))


@pytest.mark.extra
@pytest.mark.parametrize("mode", ["ddp", "tp", "fsdp", "fsdp-config"])
def test_compiled_trainer_equals_one_process(mode: str, checkpoints: Path, tmp_path: Path, single_process: Callable[[str], Run]) -> None:
    """`torch_compile=True` chooses the backend `neuron` by itself; the numbers are those of one process, not compiled."""
    results = values(run_ranks(rank_trains, MODES[mode][0], save("qwen3", checkpoints), mode, tmp_path, True, timeout=3 * LIMIT))
    check(results, tmp_path, single_process("qwen3"))
    assert all(result["graphs"] > 0 for result in results)
