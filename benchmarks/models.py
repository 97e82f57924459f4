"""Models that the benchmarks build from configurations: no download, fixed seeds."""

from __future__ import annotations

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def qwen3(hidden: int, layers: int, *, vocabulary: int = 8192, seed: int = 0) -> Qwen3ForCausalLM:
    """A Qwen3 model in float32 on the CPU with random weights.

    Args:
        hidden: width of the model, a multiple of 128 (one head per 64, half as many for keys).
        layers: number of decoder layers.
        vocabulary: number of tokens.
        seed: of the weights.
    """
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 64,
            num_key_value_heads=hidden // 128,
            head_dim=64,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
        )
    ).eval()
