"""Tiny models and data of the distributed Hugging Face tests: saved once, loaded by every rank, compared with one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as tf
from transformers import PreTrainedModel

VOCABULARY = 96
LENGTH = 16
BATCH = 8
STEPS = 20
PROMPT = 9
NEW_TOKENS = 12

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    # Wide enough that greedy continuations depend on the input, small enough that training is stable.
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    # The auxiliary loss of routers is a product of means over a batch: it differs between one batch and its parts by definition.
    "router_aux_loss_coef": 0.0,
}


def build(name: str, **overrides: Any) -> PreTrainedModel:
    """The model `name` (llama, qwen3, mixtral, qwen3_moe) on the CPU in float32; the same weights at every call."""
    torch.manual_seed(0)
    shape = {**SHAPE, **overrides}
    if name == "llama":
        return tf.LlamaForCausalLM(tf.LlamaConfig(**shape))
    if name == "qwen3":
        return tf.Qwen3ForCausalLM(tf.Qwen3Config(**shape))
    if name == "mixtral":
        return tf.MixtralForCausalLM(tf.MixtralConfig(**shape, num_local_experts=4, num_experts_per_tok=2))
    if name == "qwen3_moe":
        return tf.Qwen3MoeForCausalLM(
            tf.Qwen3MoeConfig(**shape, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True)
        )
    raise ValueError(f"no model {name!r}")


def save(name: str, folder: Path, **overrides: Any) -> Path:
    """Saves `build(name)` below `folder`, unless it is there; returns where."""
    target = folder / name
    if not target.exists():
        build(name, **overrides).save_pretrained(target)
    return target


def prompts() -> torch.Tensor:
    """int64 [2, PROMPT] on the CPU."""
    return torch.randint(2, VOCABULARY, (2, PROMPT), generator=torch.Generator().manual_seed(1))


def batches(steps: int = STEPS, batch: int = BATCH) -> torch.Tensor:
    """Sequences that count up by a stride modulo the vocabulary, so that there is something to learn: int64 [steps, batch, LENGTH]."""
    generator = torch.Generator().manual_seed(2)
    starts = torch.randint(2, VOCABULARY, (steps, batch, 1), generator=generator)
    strides = torch.randint(1, 4, (steps, batch, 1), generator=generator)
    return (starts + strides * torch.arange(LENGTH)) % (VOCABULARY - 2) + 2


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Euclidean distance relative to the norm of `expected`, in float64 on the CPU."""
    reference = expected.detach().cpu().double()
    return float((actual.detach().cpu().double() - reference).norm() / reference.norm())


def furthest(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> tuple[float, str]:
    """The largest `distance` of two state dicts with the same names, and where it is."""
    assert actual.keys() == expected.keys(), actual.keys() ^ expected.keys()
    return max((distance(actual[name], tensor), name) for name, tensor in expected.items())
