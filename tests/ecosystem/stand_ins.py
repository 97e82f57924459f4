"""Fills a hub cache with small random models under the names that peft's tests ask for, so that these tests run without the hub.

The models are this project's own: same architectures, own sizes, seeded weights. Tests that depend on the originals' sizes or weights fail
on both devices. Run as `python -m tests.ecosystem.stand_ins <cache folder>`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.ecosystem.own.transformers_common.architectures import ARCHITECTURES

REVISION = "0" * 40
VOCABULARY = 1024
SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

LLAMA4 = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "intermediate_size_mlp": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_local_experts": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# Name on the hub: architecture, mostly of the common table, and model class.
MODELS: dict[str, tuple[str, str]] = {
    "peft-internal-testing/opt-125m": ("opt", "OPTForCausalLM"),
    "facebook/opt-125m": ("opt", "OPTForCausalLM"),
    "peft-internal-testing/tiny-random-OPTForCausalLM": ("opt", "OPTForCausalLM"),
    "peft-internal-testing/tiny-random-GPT2LMHeadModel": ("gpt2", "GPT2LMHeadModel"),
    "peft-internal-testing/tiny-random-gpt2": ("gpt2", "GPT2LMHeadModel"),
    "hf-internal-testing/tiny-random-gpt2": ("gpt2", "GPT2LMHeadModel"),
    "openai-community/gpt2": ("gpt2", "GPT2LMHeadModel"),
    "peft-internal-testing/tiny-random-GPTJForCausalLM": ("gptj", "GPTJForCausalLM"),
    "trl-internal-testing/tiny-random-LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "peft-internal-testing/tiny-random-LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "hf-internal-testing/tiny-random-LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "trl-internal-testing/tiny-LlamaForSequenceClassification-3.2": ("llama", "LlamaForSequenceClassification"),
    "peft-internal-testing/tiny-dummy-qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "trl-internal-testing/tiny-Qwen2ForCausalLM-2.5": ("qwen2", "Qwen2ForCausalLM"),
    "trl-internal-testing/tiny-Qwen3ForCausalLM": ("qwen3", "Qwen3ForCausalLM"),
    "trl-internal-testing/tiny-Qwen3MoeForCausalLM": ("qwen3_moe", "Qwen3MoeForCausalLM"),
    "hf-internal-testing/tiny-random-Gemma3ForCausalLM": ("gemma3", "Gemma3ForCausalLM"),
    "hf-internal-testing/tiny-random-MistralForCausalLM": ("mistral", "MistralForCausalLM"),
    "hf-internal-testing/Mixtral-tiny": ("mixtral", "MixtralForCausalLM"),
    "trl-internal-testing/tiny-GptOssForCausalLM": ("gpt_oss", "GptOssForCausalLM"),
    "trl-internal-testing/tiny-Llama4ForCausalLM": ("llama4", "Llama4ForCausalLM"),
    "peft-internal-testing/tiny-random-BloomForCausalLM": ("bloom", "BloomForCausalLM"),
    "peft-internal-testing/tiny-random-GPTNeoXForCausalLM": ("gpt_neox", "GPTNeoXForCausalLM"),
    "peft-internal-testing/tiny-random-t5": ("t5", "T5ForConditionalGeneration"),
    "peft-internal-testing/tiny-random-T5ForConditionalGeneration": ("t5", "T5ForConditionalGeneration"),
    "peft-internal-testing/tiny-random-T5ForConditionalGeneration-calibrated": ("t5", "T5ForConditionalGeneration"),
    "peft-internal-testing/tiny-random-BartForConditionalGeneration": ("bart", "BartForConditionalGeneration"),
    "peft-internal-testing/tiny-random-BertModel": ("bert", "BertModel"),
    "peft-internal-testing/tiny-random-BertForSequenceClassification": ("bert", "BertForSequenceClassification"),
    "peft-internal-testing/tiny-random-RobertaModel": ("roberta", "RobertaModel"),
    "peft-internal-testing/tiny-random-RobertaForSequenceClassification": ("roberta", "RobertaForSequenceClassification"),
    "peft-internal-testing/tiny-random-DebertaModel": ("deberta", "DebertaModel"),
    "peft-internal-testing/tiny-random-DebertaV2Model": ("deberta_v2", "DebertaV2Model"),
    "peft-internal-testing/tiny-random-ResNetForImageClassification": ("resnet", "ResNetForImageClassification"),
}


def _configuration(architecture: str) -> transformers.PretrainedConfig:
    """Configuration with a vocabulary and positions wide enough for the prompts in the tests."""
    if architecture == "llama4":
        return transformers.Llama4TextConfig(**LLAMA4)
    if architecture == "deberta":
        return transformers.DebertaConfig(**{**ARCHITECTURES["bert"].sizes, "vocab_size": VOCABULARY})
    entry = ARCHITECTURES[architecture]
    wide: dict[str, Any] = {name: VOCABULARY for name in ("vocab_size",) if name in entry.sizes}
    wide.update({name: 256 for name in ("max_position_embeddings", "n_positions") if name in entry.sizes})
    return getattr(transformers, entry.config)(**{**entry.sizes, **wide})


def _tokenizer() -> PreTrainedTokenizerFast:
    """Splits at spaces; words that it does not know become one token."""
    words = [*SPECIAL_TOKENS.values(), *(f"word{number}" for number in range(VOCABULARY - len(SPECIAL_TOKENS)))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=SPECIAL_TOKENS["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL_TOKENS)


def make_stand_ins(home: Path) -> None:
    """Write every model of `MODELS` into the hub cache below `home` (the folder that `HF_HOME` names)."""
    tokenizer = _tokenizer()
    for name, (architecture, model_class) in MODELS.items():
        folder = home / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = folder / "snapshots" / REVISION
        torch.manual_seed(0)
        getattr(transformers, model_class)(_configuration(architecture)).save_pretrained(snapshot)
        tokenizer.save_pretrained(snapshot)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(REVISION, encoding="utf-8")


if __name__ == "__main__":
    make_stand_ins(Path(sys.argv[1]))
