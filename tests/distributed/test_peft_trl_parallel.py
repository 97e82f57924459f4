"""peft and trl on ranks: LoRA under FSDP2 and under DDP, `SFTTrainer` on tensor parallel x FSDP. The reference is one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig
from trl import SFTConfig, SFTTrainer

from .launch import run_ranks, values
from .models import BATCH, STEPS, batches, furthest, save
from .test_hf_trainer import MODES, curve, make_trainer

LIMIT = 240
LEARNING_RATE = 3e-2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("qwen3", tmp_path_factory.mktemp("checkpoints"))


def lora(model: PreTrainedModel) -> PeftModel:
    """Adapters of rank 4, both matrices random, so that they matter from the start."""
    torch.manual_seed(3)
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(model, config)


def rank_lora(rank: int, checkpoint: Path, mode: str, output: Path) -> dict[str, Any]:
    """Trains adapters and saves them."""
    _, data, _, own = MODES[mode]
    model = lora(AutoModelForCausalLM.from_pretrained(checkpoint))
    trainer = make_trainer(model, output, BATCH // data, learning_rate=LEARNING_RATE, **own)
    trainer.train()
    trainer.save_model()
    return {"loss": curve(trainer, "loss"), "device": str(trainer.args.device)}


@pytest.mark.parametrize("mode", ["ddp", "fsdp-config"])
def test_lora_equals_one_process(mode: str, checkpoint: Path, tmp_path: Path) -> None:
    """Losses and saved adapters; only adapters were trained."""
    results = values(run_ranks(rank_lora, 2, checkpoint, mode, tmp_path / "ranks", timeout=LIMIT))
    single = make_trainer(
        lora(AutoModelForCausalLM.from_pretrained(checkpoint)), tmp_path / "single", BATCH, learning_rate=LEARNING_RATE, use_cpu=True
    )
    single.train()
    single.save_model()
    losses = curve(single, "loss")
    assert losses[-1] < 0.98 * losses[0]
    for rank, result in enumerate(results):
        assert result["loss"] == pytest.approx(losses, rel=1e-5)
        assert result["device"] == f"neuron:{rank}"
    trained, expected = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("ranks", "single"))
    far, where = furthest(trained, expected)
    assert far < 1e-5, f"{where} is {far:.1e} away"


def texts() -> Dataset:
    """Token rows as trl takes them when they are tokenized already."""
    return Dataset.from_dict({"input_ids": batches().flatten(0, 1).tolist()})


def sft(model: PreTrainedModel, output: Path, rows: int, **options: Any) -> SFTTrainer:
    """`SFTTrainer` on `texts`, trained."""
    from hf.helpers import make_tokenizer

    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(output),
            max_steps=STEPS,
            per_device_train_batch_size=rows,
            learning_rate=2e-3,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            gradient_checkpointing=False,
            bf16=False,
            max_length=None,
            seed=0,
            **options,
        ),
        train_dataset=texts(),
        processing_class=make_tokenizer(300),
    )
    trainer.train()
    return trainer


def rank_sft(rank: int, checkpoint: Path, output: Path) -> list[float]:
    """TP x FSDP."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, distributed_config=DistributedConfig(tp_size=2, fsdp_size=2))
    trainer = sft(model, output, BATCH // 2)
    trainer.save_model()
    return curve(trainer, "loss")


def test_sft_on_tensor_parallel_fsdp(checkpoint: Path, tmp_path: Path) -> None:
    """Losses and saved weights are one process's."""
    results = values(run_ranks(rank_sft, 4, checkpoint, tmp_path / "ranks", timeout=LIMIT))
    single = sft(AutoModelForCausalLM.from_pretrained(checkpoint), tmp_path / "single", BATCH, use_cpu=True)
    losses = curve(single, "loss")
    assert losses[-1] < 0.95 * losses[0]
    for result in results:
        assert result == pytest.approx(losses, rel=1e-5)
    far, where = furthest(AutoModelForCausalLM.from_pretrained(tmp_path / "ranks").state_dict(), single.model.state_dict())
    assert far < 1e-5, f"{where} is {far:.1e} away"
