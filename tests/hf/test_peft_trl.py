"""peft and trl: LoRA adapters train, merge, save and load; `SFTTrainer` trains: losses and merged weights equal the CPU's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import PreTrainedModel
from trl import SFTConfig, SFTTrainer

from .helpers import CORPUS, assert_all_on, assert_same_weights, make_tokenizer
from .model_zoo import make_inputs
from .training import curve, tiny_llama, train_on, where

VOCABULARY = 300


def lora(model: PreTrainedModel, **options: Any) -> PeftModel:
    """Adapters of rank 4 on attention projections and the head; the second matrices are random, so that they matter from the start."""
    torch.manual_seed(3)
    targets = ["q_proj", "v_proj", "lm_head"]
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=16, target_modules=targets, init_lora_weights=False, **options)
    return get_peft_model(model, config)


def test_lora_training_and_merge_equal_cpu(tmp_path: Path, device: str, indexed_device: torch.device) -> None:
    """Only adapters change; the loss falls; curve and merged weights are the CPU's."""
    base = tiny_llama()
    runs = [train_on(name, tmp_path / name, model=lora(copy.deepcopy(base)), learning_rate=2e-2) for name in (device, "cpu")]
    assert_all_on(runs[0].model, indexed_device)
    losses = curve(runs[0])
    assert losses == pytest.approx(curve(runs[1]), rel=1e-5)
    assert losses[-1] < 0.98 * losses[0]

    merged, expected = (run.model.merge_and_unload() for run in runs)
    assert merged.device == indexed_device
    assert_same_weights(merged, expected, rtol=1e-4, atol=1e-5)
    changed = [name for name, value in merged.state_dict().items() if not torch.equal(value.cpu(), base.state_dict()[name])]
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "v_proj", "lm_head"}


def test_merging_is_the_same_function(device: str) -> None:
    """Merged weights, unmerged adapters and disabled adapters: the first two agree, the third is the base model."""
    base = tiny_llama().eval()
    inputs = {key: value.to(device) for key, value in make_inputs("llama", padded=False).items()}
    model = lora(copy.deepcopy(base)).eval().to(device)
    with torch.no_grad():
        adapted = model(**inputs).logits
        with model.disable_adapter():
            plain = model(**inputs).logits
        merged = model.merge_and_unload()(**inputs).logits
        expected = base(**{key: value.cpu() for key, value in inputs.items()}).logits
    torch.testing.assert_close(merged, adapted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(plain.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(adapted, plain, atol=1e-2)


def test_adapter_round_trip(tmp_path: Path, device: str, indexed_device: torch.device) -> None:
    """Saved from the device, loaded onto it (peft itself loads on the CPU and moves)."""
    base = tiny_llama()
    model = lora(copy.deepcopy(base)).to(device)
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(copy.deepcopy(base).to(device), tmp_path)
    assert_all_on(loaded, indexed_device)
    assert_same_weights(loaded, model)


def test_lora_with_dropout_bf16_and_checkpointing(tmp_path: Path, device: str) -> None:
    """The usual fine-tuning arguments together."""
    model = lora(tiny_llama(), lora_dropout=0.1)
    trainer = train_on(device, tmp_path, model=model, bf16=True, gradient_checkpointing=True, learning_rate=2e-2, max_steps=20)
    losses = curve(trainer)
    assert sum(losses[-5:]) < 0.97 * sum(losses[:5])


@pytest.mark.neuron_only
def test_lora_compiled(tmp_path: Path, fresh_compiler: None) -> None:
    """`torch_compile=True` on a peft model: the eager curve, one graph each way."""
    eager = train_on("cpu", tmp_path / "eager", model=lora(tiny_llama()), max_steps=5)
    compiled = train_on("neuron", tmp_path / "compiled", model=lora(tiny_llama()), max_steps=5, torch_compile=True)
    assert curve(compiled) == pytest.approx(curve(eager), rel=1e-5)
    assert len(torch.neuron.get_dynamo_metrics()) == 2


def sft(folder: Path, device: str, data: Dataset, **options: Any) -> SFTTrainer:
    """Runs `SFTTrainer` on a tiny Llama whose vocabulary fits the tokenizer."""
    arguments = {
        "output_dir": str(folder),
        "max_steps": 12,
        "per_device_train_batch_size": 4,
        "learning_rate": 5e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "max_length": 64,
        "seed": 0,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "bf16": False,
    }
    peft_config = options.pop("peft_config", None)
    trainer = SFTTrainer(
        model=tiny_llama(vocab_size=VOCABULARY),
        args=SFTConfig(**{**arguments, **where(device), **options}),
        train_dataset=data,
        processing_class=make_tokenizer(VOCABULARY),
        peft_config=peft_config,
    )
    trainer.train()
    return trainer


def sentences() -> Dataset:
    """The corpus sentence by sentence, repeated."""
    parts = [part.strip() for part in CORPUS.replace("\n", " ").replace(";", ".").split(".") if len(part) > 20]
    return Dataset.from_dict({"text": parts * 8})


def conversations() -> Dataset:
    """Prompts and completions: the loss counts completions only."""
    parts = [part.strip() for part in CORPUS.replace("\n", " ").replace(";", ".").split(".") if len(part) > 20]
    return Dataset.from_dict({"prompt": [part[:20] for part in parts] * 8, "completion": [part[20:] for part in parts] * 8})


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (sentences, {}),
        (sentences, {"packing": True, "max_length": 48, "packing_strategy": "wrapped"}),
        (conversations, {"completion_only_loss": True}),
        (conversations, {"loss_type": "chunked_nll"}),
    ],
    ids=["sentences", "packing", "completions", "chunked-nll"],
)
def test_sft_equals_cpu(data: Any, options: dict[str, Any], tmp_path: Path, device: str, indexed_device: torch.device) -> None:
    trainer = sft(tmp_path / "device", device, data(), **options)
    assert trainer.model.device == indexed_device
    cpu = sft(tmp_path / "cpu", "cpu", data(), **options)
    assert curve(trainer) == pytest.approx(curve(cpu), rel=1e-5)
    assert curve(trainer)[-1] < 0.9 * curve(trainer)[0]
    accuracy = "mean_token_accuracy"
    assert curve(trainer, accuracy) == pytest.approx(curve(cpu, accuracy), rel=1e-5)


def test_sft_defaults_with_lora(tmp_path: Path, device: str) -> None:
    """trl's own defaults (bfloat16, gradient checkpointing) and a LoRA configuration: the loss falls."""
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=8, lora_alpha=32, target_modules="all-linear")
    trainer = sft(
        tmp_path, device, sentences(), bf16=True, gradient_checkpointing=True, peft_config=config, max_steps=30, learning_rate=2e-2
    )
    losses = curve(trainer)
    assert sum(losses[-4:]) < 0.95 * sum(losses[:4])
