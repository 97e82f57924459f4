"""Shared by the training tests: a tiny model and data set, a `Trainer` that runs on the device under test or on the CPU, its loss curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, default_data_collator

from .helpers import TEST_DEVICE
from .model_zoo import DECODER, VOCAB_SIZE

STEPS = 20
SEQUENCE = 24


class Sequences(Dataset[dict[str, torch.Tensor]]):
    """Learnable token sequences: each counts upwards from a random start with a random stride.

    Items are dicts of int64 tensors [length]: `input_ids`, `attention_mask`, `labels`; with `padding`, the last tokens of every third
    sequence are padding, masked and ignored by the loss (label -100).
    """

    def __init__(self, size: int = 256, length: int = SEQUENCE, padding: bool = True, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(10, VOCAB_SIZE, (size, 1), generator=generator)
        strides = torch.randint(1, 4, (size, 1), generator=generator)
        self.tokens = (starts + strides * torch.arange(length)) % (VOCAB_SIZE - 10) + 10
        self.padding = padding

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens, labels = self.tokens[index].clone(), self.tokens[index].clone()
        mask = torch.ones_like(tokens)
        if self.padding and index % 3 == 0:
            tokens[-4:], labels[-4:], mask[-4:] = 0, -100, 0
        return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def tiny_llama(seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """A two-layer Llama of 107,000 parameters on the CPU, in float32, ready to train."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**{**DECODER, "initializer_range": 0.05, **overrides}))


def where(device: str) -> dict[str, bool]:
    """Arguments that put a `Trainer` on `device`: it finds `neuron` by itself, the CPU must be asked for."""
    return {"use_cpu": True} if device == "cpu" else {}


def make_trainer(
    folder: Path,
    device: str = TEST_DEVICE,
    model: PreTrainedModel | None = None,
    data: Dataset[Any] | None = None,
    callbacks: list[TrainerCallback] | None = None,
    eval_dataset: Dataset[Any] | None = None,
    **arguments: Any,
) -> Trainer:
    """A `Trainer` that logs every step and saves nothing, unless `arguments` (of `TrainingArguments`) say otherwise."""
    defaults = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "learning_rate": 2e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 0,
    }
    return Trainer(
        model=model if model is not None else tiny_llama(),
        args=TrainingArguments(output_dir=str(folder), **{**defaults, **where(device), **arguments}),
        train_dataset=data if data is not None else Sequences(),
        eval_dataset=eval_dataset,
        data_collator=default_data_collator,
        callbacks=callbacks,
    )


def curve(trainer: Trainer, key: str = "loss") -> list[float]:
    """The values logged under `key`, one a logging step."""
    return [record[key] for record in trainer.state.log_history if key in record]


def train_on(device: str, folder: Path, **options: Any) -> Trainer:
    """Makes a trainer (see `make_trainer`) and trains it."""
    trainer = make_trainer(folder, device, **options)
    trainer.train()
    return trainer
