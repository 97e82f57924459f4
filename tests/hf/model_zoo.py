"""Tiny models of many architectures, built from configurations with fixed seeds: no download, a few hundred KB each.

Weights are drawn wider than usual (`INITIALIZER_RANGE`): with the default 0.02 a two-layer model almost ignores its input, its greedy
continuation repeats one token, and a device that computes attention wrongly would still produce the right tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import transformers as tf
from transformers import PreTrainedModel

VOCAB_SIZE = 256
HIDDEN_SIZE = 64
PAD, BOS, EOS = 0, 1, 2
INITIALIZER_RANGE = 0.25

SPECIAL_TOKENS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
DECODER = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": INITIALIZER_RANGE,
    "tie_word_embeddings": False,
    **SPECIAL_TOKENS,
}
IMAGE_TOKEN = 5
IMAGE_SIZE = 16
PATCH_SIZE = 8


@dataclass(frozen=True)
class ModelCase:
    """One architecture: how to build its model and which extra inputs `generate` needs.

    Attributes:
        build: makes the model on the CPU in float32, in eval mode; seeded by `make_model`.
        encoder_decoder: True where `input_ids` feed the encoder.
        extra_inputs: makes further inputs (images, for example) for a batch of `n` prompts; also changes `input_ids` if it must.
        padding: whether a batch with left padding is meaningful for the architecture.
        moved_by_user: inputs that transformers does not move to the model's device by itself (it moves what a decoder's forward consumes,
            not what feeds an encoder or a vision tower); on any accelerator the user moves them.
    """

    build: Callable[[], PreTrainedModel]
    encoder_decoder: bool = False
    extra_inputs: Callable[[torch.Tensor], dict[str, torch.Tensor]] = field(default=lambda input_ids: {})
    padding: bool = True
    moved_by_user: tuple[str, ...] = ()


def _llama() -> PreTrainedModel:
    return tf.LlamaForCausalLM(tf.LlamaConfig(**DECODER))


def _qwen3() -> PreTrainedModel:
    return tf.Qwen3ForCausalLM(tf.Qwen3Config(**DECODER))


def _gpt2() -> PreTrainedModel:
    return tf.GPT2LMHeadModel(
        tf.GPT2Config(
            vocab_size=VOCAB_SIZE,
            n_embd=HIDDEN_SIZE,
            n_layer=2,
            n_head=4,
            n_positions=256,
            initializer_range=INITIALIZER_RANGE,
            **SPECIAL_TOKENS,
        )
    )


def _gemma3() -> PreTrainedModel:
    """Alternating sliding-window (8 tokens, shorter than the prompts) and full attention."""
    config = tf.Gemma3TextConfig(
        **{**DECODER, "num_hidden_layers": 4}, sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2
    )
    return tf.Gemma3ForCausalLM(config)


def _mistral() -> PreTrainedModel:
    """Sliding window of 8 tokens in every layer."""
    return tf.MistralForCausalLM(tf.MistralConfig(**DECODER, sliding_window=8))


def _mixtral() -> PreTrainedModel:
    return tf.MixtralForCausalLM(tf.MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2))


def _qwen3_moe() -> PreTrainedModel:
    config = tf.Qwen3MoeConfig(**DECODER, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)
    return tf.Qwen3MoeForCausalLM(config)


def _deepseek_v3() -> PreTrainedModel:
    """Multi-head latent attention: keys and values have different widths; shared and routed experts with groups."""
    config = tf.DeepseekV3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=128,
        moe_intermediate_size=32,
        num_hidden_layers=2,
        first_k_dense_replace=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        q_lora_rank=32,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=16,
        max_position_embeddings=256,
        initializer_range=INITIALIZER_RANGE,
        tie_word_embeddings=False,
        **SPECIAL_TOKENS,
    )
    return tf.DeepseekV3ForCausalLM(config)


def _qwen3_next() -> PreTrainedModel:
    """Hybrid: gated delta-rule (linear attention) layers next to a full-attention layer, MoE feed-forward."""
    config = tf.Qwen3NextConfig(
        **DECODER,
        layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    )
    return tf.Qwen3NextForCausalLM(config)


def _t5() -> PreTrainedModel:
    config = tf.T5Config(
        vocab_size=VOCAB_SIZE,
        d_model=HIDDEN_SIZE,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=PAD,
        initializer_factor=4.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
    )
    return tf.T5ForConditionalGeneration(config)


def _bart() -> PreTrainedModel:
    config = tf.BartConfig(
        vocab_size=VOCAB_SIZE,
        d_model=HIDDEN_SIZE,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=256,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        init_std=INITIALIZER_RANGE,
        **SPECIAL_TOKENS,
    )
    return tf.BartForConditionalGeneration(config)


def _mamba() -> PreTrainedModel:
    config = tf.MambaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        state_size=8,
        num_hidden_layers=2,
        time_step_rank=4,
        initializer_range=INITIALIZER_RANGE,
        tie_word_embeddings=False,
        **SPECIAL_TOKENS,
    )
    return tf.MambaForCausalLM(config)


def _mamba2() -> PreTrainedModel:
    config = tf.Mamba2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        state_size=8,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=16,
        n_groups=2,
        chunk_size=16,
        initializer_range=INITIALIZER_RANGE,
        tie_word_embeddings=False,
        **SPECIAL_TOKENS,
    )
    return tf.Mamba2ForCausalLM(config)


def _llava() -> PreTrainedModel:
    """CLIP vision tower (16x16 images, 8x8 patches) in front of a Llama."""
    vision = tf.CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=IMAGE_SIZE, patch_size=PATCH_SIZE
    )
    config = tf.LlavaConfig(
        vision_config=vision,
        text_config=tf.LlamaConfig(**DECODER),
        image_token_index=IMAGE_TOKEN,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )
    return tf.LlavaForConditionalGeneration(config)


def _llava_inputs(input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """One random image a prompt; its four patches replace the last but three tokens."""
    patches = (IMAGE_SIZE // PATCH_SIZE) ** 2
    input_ids[:, -3 - patches : -3] = IMAGE_TOKEN
    generator = torch.Generator().manual_seed(7)
    return {"pixel_values": torch.randn(len(input_ids), 3, IMAGE_SIZE, IMAGE_SIZE, generator=generator)}


ZOO: dict[str, ModelCase] = {
    "llama": ModelCase(_llama),
    "qwen3": ModelCase(_qwen3),
    "gpt2": ModelCase(_gpt2),
    "gemma3": ModelCase(_gemma3),
    "mistral": ModelCase(_mistral),
    "mixtral": ModelCase(_mixtral),
    "qwen3_moe": ModelCase(_qwen3_moe),
    "deepseek_v3": ModelCase(_deepseek_v3),
    "qwen3_next": ModelCase(_qwen3_next),
    "t5": ModelCase(_t5, encoder_decoder=True, moved_by_user=("input_ids", "attention_mask")),
    "bart": ModelCase(_bart, encoder_decoder=True, moved_by_user=("input_ids", "attention_mask")),
    "mamba": ModelCase(_mamba, padding=False),
    "mamba2": ModelCase(_mamba2, padding=False),
    "llava": ModelCase(_llava, extra_inputs=_llava_inputs, moved_by_user=("pixel_values",)),
}


def make_model(name: str, seed: int = 0) -> PreTrainedModel:
    """Builds the model `name` of `ZOO` on the CPU: float32, eval mode, the same weights for the same seed."""
    torch.manual_seed(seed)
    model = ZOO[name].build().eval()
    model.generation_config.pad_token_id = PAD
    # A random model may write the end token at any time; tests decide on lengths themselves.
    model.generation_config.eos_token_id = None
    return model


def make_inputs(name: str, batch: int = 2, length: int = 12, padded: bool = True, seed: int = 1) -> dict[str, torch.Tensor]:
    """Random prompts on the CPU for the model `name`.

    Args:
        padded: pads every second row on the left by three tokens, where the architecture knows padding.

    Returns:
        `input_ids` int64 [batch, length], `attention_mask` int64 of the same shape, and what the architecture needs besides.
    """
    case = ZOO[name]
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(10, VOCAB_SIZE, (batch, length), generator=generator)
    extra = case.extra_inputs(input_ids)
    mask = torch.ones_like(input_ids)
    if padded and case.padding:
        mask[1::2, :3] = 0
        input_ids[1::2, :3] = PAD
    return {"input_ids": input_ids, "attention_mask": mask, **extra}


def as_user_passes(name: str, inputs: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Inputs as a user hands them to `generate` of a model on `device`: on the CPU, but for those that `ModelCase.moved_by_user` names."""
    return {key: value.to(device) if key in ZOO[name].moved_by_user else value for key, value in inputs.items()}
