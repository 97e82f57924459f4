"""Compiled forwards of many architectures equal eager ones. The first few run always, the rest with `-m extra`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers as tf

from hf.helpers import TEST_DEVICE, assert_close_as_cpu, compiled_graphs, distance
from hf.model_zoo import HIDDEN_SIZE, IMAGE_SIZE, INITIALIZER_RANGE, PATCH_SIZE, SPECIAL_TOKENS, VOCAB_SIZE, make_inputs, make_model

pytestmark = pytest.mark.neuron_only

SMALL = {"hidden_size": HIDDEN_SIZE, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
RANGE = {"initializer_range": INITIALIZER_RANGE}


def _tokens(length: int = 12) -> torch.Tensor:
    return torch.randint(10, VOCAB_SIZE, (2, length), generator=torch.Generator().manual_seed(1))


def _image(channels: int = 3, size: int = IMAGE_SIZE) -> torch.Tensor:
    return torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(2))


@dataclass(frozen=True)
class Architecture:
    """How to make the model and what to call it with, on the CPU in float32."""

    build: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    extra: bool = True


def _zoo(name: str, extra: bool = True) -> Architecture:
    return Architecture(lambda: make_model(name), lambda: make_inputs(name), extra)


def _encoder_decoder(name: str) -> Architecture:
    return Architecture(lambda: make_model(name), lambda: {**make_inputs(name), "decoder_input_ids": _tokens(6)})


def _opt() -> torch.nn.Module:
    config = tf.OPTConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        ffn_dim=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        word_embed_proj_dim=HIDDEN_SIZE,
        max_position_embeddings=64,
        init_std=INITIALIZER_RANGE,
        **SPECIAL_TOKENS,
    )
    return tf.OPTForCausalLM(config)


def _phi3() -> torch.nn.Module:
    config = tf.Phi3Config(vocab_size=VOCAB_SIZE, num_key_value_heads=2, max_position_embeddings=256, **SMALL, **RANGE, **SPECIAL_TOKENS)
    return tf.Phi3ForCausalLM(config)


def _bert() -> torch.nn.Module:
    return tf.BertForMaskedLM(tf.BertConfig(vocab_size=VOCAB_SIZE, max_position_embeddings=64, pad_token_id=0, **SMALL, **RANGE))


def _whisper() -> torch.nn.Module:
    config = tf.WhisperConfig(
        vocab_size=VOCAB_SIZE, num_mel_bins=16, d_model=HIDDEN_SIZE, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=20, max_target_positions=32,
        init_std=INITIALIZER_RANGE, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, **SPECIAL_TOKENS,
    )  # fmt: skip
    return tf.WhisperForConditionalGeneration(config)


def _vit() -> torch.nn.Module:
    return tf.ViTForImageClassification(tf.ViTConfig(image_size=IMAGE_SIZE, patch_size=PATCH_SIZE, num_labels=5, **SMALL, **RANGE))


def _clip() -> torch.nn.Module:
    config = tf.CLIPConfig(
        text_config={**SMALL, "vocab_size": VOCAB_SIZE, "max_position_embeddings": 64, **SPECIAL_TOKENS},
        vision_config={**SMALL, "image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE},
        projection_dim=32,
    )
    return tf.CLIPModel(config)


def _mel() -> torch.Tensor:
    return torch.randn(2, 16, 40, generator=torch.Generator().manual_seed(3))


ARCHITECTURES: dict[str, Architecture] = {
    "qwen3": _zoo("qwen3", extra=False),
    "gpt2": _zoo("gpt2", extra=False),
    "bert": Architecture(_bert, lambda: {"input_ids": _tokens()}, extra=False),
    "llama": _zoo("llama"),
    "gemma3": _zoo("gemma3"),
    "mixtral": _zoo("mixtral"),
    "qwen3_moe": _zoo("qwen3_moe"),
    "mamba": _zoo("mamba"),
    "t5": _encoder_decoder("t5"),
    "opt": Architecture(_opt, lambda: {"input_ids": _tokens()}),
    "phi3": Architecture(_phi3, lambda: {"input_ids": _tokens()}),
    "whisper": Architecture(_whisper, lambda: {"input_features": _mel(), "decoder_input_ids": _tokens(6)}),
    "vit": Architecture(_vit, lambda: {"pixel_values": _image()}),
    "clip": Architecture(_clip, lambda: {"input_ids": _tokens(), "pixel_values": _image()}),
}


def _result(model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
    with torch.no_grad():
        output = model(**inputs)
    return output["logits_per_image"] if "logits_per_image" in output else output["logits"]


def _model(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return ARCHITECTURES[name].build().eval()


def _moved(inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {key: value.to(TEST_DEVICE, dtype if value.is_floating_point() else None) for key, value in inputs.items()}


NAMES = [pytest.param(name, marks=pytest.mark.extra if case.extra else ()) for name, case in ARCHITECTURES.items()]


@pytest.mark.parametrize("name", NAMES)
def test_compiled_equals_eager_in_float32(name: str) -> None:
    inputs = ARCHITECTURES[name].inputs()
    expected = _result(_model(name), inputs)
    model = _model(name).to(TEST_DEVICE)
    torch.compiler.reset()
    before = compiled_graphs()
    actual = _result(torch.compile(model, backend="neuron"), _moved(inputs, torch.float32))
    assert compiled_graphs() > before
    assert distance(actual, expected) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_compiled_bfloat16_is_as_good_as_the_cpu(name: str) -> None:
    inputs = ARCHITECTURES[name].inputs()
    reference = _result(_model(name), inputs)
    halves = {key: value.to(torch.bfloat16) if value.is_floating_point() else value for key, value in inputs.items()}
    cpu = _result(_model(name).to(torch.bfloat16), halves)
    torch.compiler.reset()
    model = torch.compile(_model(name).to(TEST_DEVICE, torch.bfloat16), backend="neuron")
    assert_close_as_cpu(_result(model, _moved(inputs, torch.bfloat16)), cpu, reference)


@pytest.mark.parametrize(
    "name", [pytest.param("qwen3"), pytest.param("gpt2", marks=pytest.mark.extra), pytest.param("t5", marks=pytest.mark.extra)]
)
def test_compiled_gradients_equal_eager(name: str) -> None:
    inputs = ARCHITECTURES[name].inputs()
    inputs["labels"] = inputs.get("decoder_input_ids", inputs["input_ids"])
    reference, exact = _model(name), _model(name).double()
    reference(**inputs).loss.backward()
    exact(**{key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}).loss.backward()
    model = _model(name).to(TEST_DEVICE)
    torch.compiler.reset()
    torch.compile(model, backend="neuron")(**_moved(inputs, torch.float32)).loss.backward()
    # T5's queries have gradients that almost cancel: the CPU's own are 14 % away from float64.
    for (key, ours), theirs, right in zip(model.named_parameters(), reference.parameters(), exact.parameters(), strict=True):
        if theirs.grad is not None and theirs.grad.norm() > 1e-6:
            assert ours.grad is not None, key
            assert distance(ours.grad, right.grad) < 1e-3 + 2 * distance(theirs.grad, right.grad), key
