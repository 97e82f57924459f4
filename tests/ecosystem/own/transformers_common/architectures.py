"""The architectures to which transformers' common model tests are applied: classes and sizes, a few thousand weights each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODER = {**TEXT, "num_key_value_heads": 2}
HEADED = {**DECODER, "head_dim": 8}
NO_WIDTH = {key: value for key, value in TEXT.items() if key != "intermediate_size"}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
GPT = {
    "vocab_size": 99,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
    "num_channels": 3,
}
SEQ2SEQ = {
    "vocab_size": 99,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
CONV = {"image_size": 32, "num_channels": 3}
SPEECH = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "feat_extract_norm": "group",
    "conv_dim": (32, 32, 32),
    "conv_stride": (4, 4, 4),
    "conv_kernel": (8, 8, 8),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 32,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}


@dataclass(frozen=True)
class Architecture:
    """One architecture.

    Attributes:
        kind: which inputs it takes: `decoder`, `encoder`, `seq2seq`, `image` or `speech`.
        config: name of the configuration class in transformers.
        models: names of the model classes, the base model first.
        sizes: arguments of the configuration.
        attributes: of the test class (switches that the common tests look at).
    """

    kind: str
    config: str
    models: tuple[str, ...]
    sizes: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)


def _decoder(prefix: str, sizes: dict[str, Any], config: str = "", models: tuple[str, ...] = (), **attributes: Any) -> Architecture:
    models = models or (f"{prefix}Model", f"{prefix}ForCausalLM")
    return Architecture("decoder", config or f"{prefix}Config", models, sizes, attributes)


def _encoder(prefix: str, sizes: dict[str, Any], heads: tuple[str, ...] = (), **attributes: Any) -> Architecture:
    heads = heads or ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    models = (f"{prefix}Model", *(f"{prefix}{head}" for head in heads))
    return Architecture("encoder", f"{prefix}Config", models, sizes, attributes)


def _image(prefix: str, sizes: dict[str, Any], **attributes: Any) -> Architecture:
    # Image models have no token embeddings to resize.
    attributes = {"test_resize_embeddings": False, **attributes}
    return Architecture("image", f"{prefix}Config", (f"{prefix}Model", f"{prefix}ForImageClassification"), sizes, attributes)


def _seq2seq(prefix: str, sizes: dict[str, Any], **attributes: Any) -> Architecture:
    models = (f"{prefix}Model", f"{prefix}ForConditionalGeneration")
    return Architecture("seq2seq", f"{prefix}Config", models, sizes, {"is_encoder_decoder": True, **attributes})


def _speech(prefix: str, sizes: dict[str, Any], **attributes: Any) -> Architecture:
    attributes = {"test_resize_embeddings": False, **attributes}
    return Architecture("speech", f"{prefix}Config", (f"{prefix}Model", f"{prefix}ForCTC"), sizes, attributes)


STATE_SPACE = {"has_attentions": False}
# Tokens reach some experts only, so some weights have no gradient.
ROUTED = {"test_all_params_have_gradient": False}

ARCHITECTURES: dict[str, Architecture] = {
    # Decoders
    "llama": _decoder("Llama", HEADED, models=("LlamaModel", "LlamaForCausalLM", "LlamaForSequenceClassification")),
    "mistral": _decoder("Mistral", {**HEADED, "sliding_window": 4}),
    "mixtral": _decoder("Mixtral", {**HEADED, "num_local_experts": 4, "num_experts_per_tok": 2}, **ROUTED),
    "qwen2": _decoder("Qwen2", DECODER, models=("Qwen2Model", "Qwen2ForCausalLM", "Qwen2ForTokenClassification")),
    "qwen2_moe": _decoder("Qwen2Moe", {**DECODER, **MOE, "shared_expert_intermediate_size": 32}, **ROUTED),
    "qwen3": _decoder("Qwen3", HEADED),
    "qwen3_moe": _decoder("Qwen3Moe", {**HEADED, **MOE}, **ROUTED),
    "gemma": _decoder("Gemma", HEADED),
    "gemma2": _decoder("Gemma2", {**HEADED, "sliding_window": 4}),
    "gemma3": _decoder(
        "Gemma3",
        {**HEADED, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
        config="Gemma3TextConfig",
        models=("Gemma3TextModel", "Gemma3ForCausalLM"),
    ),
    "phi": _decoder("Phi", {**DECODER, "num_key_value_heads": 4}),
    "phi3": _decoder("Phi3", DECODER),
    "gpt2": _decoder("GPT2", GPT, models=("GPT2Model", "GPT2LMHeadModel", "GPT2ForTokenClassification")),
    "gpt_neo": _decoder(
        "GPTNeo",
        {
            **{key: value for key, value in TEXT.items() if key not in {"num_hidden_layers", "num_attention_heads"}},
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 7,
        },
    ),
    "gpt_neox": _decoder("GPTNeoX", TEXT),
    "gptj": _decoder("GPTJ", {**GPT, "rotary_dim": 4}),
    "gpt_bigcode": _decoder("GPTBigCode", {**GPT, "n_inner": 64}),
    "codegen": _decoder("CodeGen", {**GPT, "rotary_dim": 4}),
    "opt": _decoder(
        "OPT", {**{key: value for key, value in TEXT.items() if key != "intermediate_size"}, "ffn_dim": 64, "word_embed_proj_dim": 32}
    ),
    "bloom": _decoder("Bloom", {"vocab_size": 99, "hidden_size": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 0}),
    "falcon": _decoder("Falcon", {**NO_WIDTH, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "olmo2": _decoder("Olmo2", DECODER),
    "stablelm": _decoder("StableLm", DECODER),
    "cohere": _decoder("Cohere", DECODER),
    "starcoder2": _decoder("Starcoder2", DECODER),
    "granite": _decoder("Granite", DECODER),
    "glm": _decoder("Glm", HEADED),
    "smollm3": _decoder("SmolLM3", DECODER),
    "nemotron": _decoder("Nemotron", HEADED),
    "gpt_oss": _decoder(
        "GptOss",
        {
            **HEADED,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        **ROUTED,
    ),
    "deepseek_v3": _decoder(
        "DeepseekV3",
        {
            **TEXT,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 16,
        },
        **ROUTED,
    ),
    "mamba": _decoder(
        "Mamba",
        {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4, "pad_token_id": 0},
        **STATE_SPACE,
    ),
    # Encoders
    "bert": _encoder("Bert", TEXT),
    "roberta": _encoder("Roberta", {**TEXT, "pad_token_id": 1, "bos_token_id": 0}),
    "distilbert": _encoder(
        "DistilBert",
        {"vocab_size": 99, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0},
    ),
    "albert": _encoder("Albert", {**TEXT, "embedding_size": 16, "num_hidden_groups": 2}),
    "electra": _encoder("Electra", {**TEXT, "embedding_size": 16}),
    "deberta_v2": _encoder("DebertaV2", {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}),
    "mpnet": _encoder("MPNet", {**TEXT, "pad_token_id": 1, "bos_token_id": 0}),
    "modernbert": _encoder(
        "ModernBert", {**TEXT, "global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}
    ),
    "convbert": _encoder("ConvBert", {**TEXT, "embedding_size": 16, "conv_kernel_size": 3}),
    # Sequence to sequence
    "t5": _seq2seq(
        "T5",
        {
            "vocab_size": 99,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 37,
            "num_layers": 2,
            "num_heads": 4,
            "relative_attention_num_buckets": 8,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "decoder_start_token_id": 0,
        },
    ),
    "bart": _seq2seq("Bart", {**SEQ2SEQ, "forced_eos_token_id": None}),
    "mbart": _seq2seq("MBart", {**SEQ2SEQ, "forced_eos_token_id": None}),
    "pegasus": _seq2seq("Pegasus", {**SEQ2SEQ, "forced_eos_token_id": None}),
    "m2m_100": _seq2seq("M2M100", SEQ2SEQ),
    # Images
    "vit": _image("ViT", VISION),
    "deit": _image("DeiT", VISION),
    "dinov2": _image("Dinov2", VISION),
    "swin": _image(
        "Swin",
        {**CONV, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 2},
    ),
    "resnet": _image("ResNet", {"num_channels": 3, "embedding_size": 10, "hidden_sizes": [8, 16], "depths": [1, 1]}, has_attentions=False),
    "convnext": _image("ConvNext", {**CONV, "num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1]}, has_attentions=False),
    "segformer": _image(
        "Segformer",
        {
            "num_channels": 3,
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
    ),
    # Speech
    "wav2vec2": _speech("Wav2Vec2", SPEECH),
    "hubert": _speech("Hubert", SPEECH),
}
