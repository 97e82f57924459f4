"""`pipeline(task, device="neuron")` for five tasks: the same answers as on the CPU, computed on the device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from PIL import Image
from transformers import Pipeline, pipeline

from .helpers import make_tokenizer
from .model_zoo import DECODER, INITIALIZER_RANGE, PAD

VOCABULARY = 300
SAMPLING_RATE = 16_000
ENCODER = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "initializer_range": INITIALIZER_RANGE,
}
PROMPTS = ["Call me Ishmael. Some years ago", "It is a way I have of driving off the spleen"]


def bert(architecture: type[tf.PreTrainedModel]) -> tf.PreTrainedModel:
    """A two-layer BERT with the given head."""
    return architecture(tf.BertConfig(**ENCODER, vocab_size=VOCABULARY, max_position_embeddings=256, pad_token_id=PAD))


def text_generation(device: str, tmp_path: Path) -> Pipeline:
    model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**{**DECODER, "vocab_size": VOCABULARY}))
    return pipeline("text-generation", model=model, tokenizer=make_tokenizer(VOCABULARY), device=device)


def fill_mask(device: str, tmp_path: Path) -> Pipeline:
    return pipeline("fill-mask", model=bert(tf.BertForMaskedLM), tokenizer=make_tokenizer(VOCABULARY), device=device)


def feature_extraction(device: str, tmp_path: Path) -> Pipeline:
    return pipeline("feature-extraction", model=bert(tf.BertModel), tokenizer=make_tokenizer(VOCABULARY), device=device)


def image_classification(device: str, tmp_path: Path) -> Pipeline:
    model = tf.ViTForImageClassification(tf.ViTConfig(**ENCODER, image_size=32, patch_size=8, num_labels=7))
    processor = tf.ViTImageProcessorPil(size={"height": 32, "width": 32})
    return pipeline("image-classification", model=model, image_processor=processor, device=device)


def speech_recognition(device: str, tmp_path: Path) -> Pipeline:
    """wav2vec 2.0 with a CTC head over 26 letters."""
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrstuvwxyz"]
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text(json.dumps({letter: index for index, letter in enumerate(letters)}))
    config = tf.Wav2Vec2Config(
        **ENCODER,
        vocab_size=len(letters),
        conv_dim=(32, 32, 32),
        conv_kernel=(10, 8, 4),
        conv_stride=(8, 8, 4),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        pad_token_id=PAD,
    )
    return pipeline(
        "automatic-speech-recognition",
        model=tf.Wav2Vec2ForCTC(config),
        tokenizer=tf.Wav2Vec2CTCTokenizer(str(vocabulary)),
        feature_extractor=tf.Wav2Vec2FeatureExtractor(sampling_rate=SAMPLING_RATE),
        device=device,
    )


def images() -> list[Image.Image]:
    """Two synthetic photographs: noise with a gradient, 48 x 40 pixels, RGB."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 48, 40, 3)) // 2 + np.linspace(0, 127, 40, dtype=np.int64)[:, None]
    return [Image.fromarray(picture.astype(np.uint8)) for picture in pixels]


def sounds() -> list[dict[str, Any]]:
    """Two synthetic recordings of different lengths: chirps with noise, mono, float32 in [-1, 1]."""
    random = np.random.default_rng(0)
    recordings = []
    for seconds in (0.5, 0.8):
        time = np.arange(int(seconds * SAMPLING_RATE)) / SAMPLING_RATE
        wave = 0.5 * np.sin(2 * np.pi * (200 + 900 * time) * time) + 0.1 * random.standard_normal(len(time))
        recordings.append({"raw": wave.astype(np.float32), "sampling_rate": SAMPLING_RATE})
    return recordings


TASKS: dict[str, tuple[Callable[[str, Path], Pipeline], Callable[[], list[Any]], dict[str, Any]]] = {
    "text-generation": (text_generation, lambda: PROMPTS, {"do_sample": False, "max_new_tokens": 12, "batch_size": 2}),
    "fill-mask": (fill_mask, lambda: [f"{prompt} <mask> the sea" for prompt in PROMPTS], {"top_k": 5}),
    "feature-extraction": (feature_extraction, lambda: PROMPTS, {}),
    "image-classification": (image_classification, images, {"top_k": 7, "batch_size": 2}),
    "automatic-speech-recognition": (speech_recognition, sounds, {}),
}


def assert_same_answers(actual: Any, expected: Any) -> None:
    """Compares nested lists and dicts: text exactly, numbers to 1e-4 relative."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same_answers(actual[key], expected[key])
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for left, right in zip(actual, expected, strict=True):
            assert_same_answers(left, right)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert actual == expected


def run_task(task: str, device: str, tmp_path: Path) -> tuple[Pipeline, Any]:
    """Builds the pipeline with seeded weights and runs it on its two inputs."""
    build, make_inputs, options = TASKS[task]
    torch.manual_seed(0)
    pipe = build(device, tmp_path)
    pipe.model.eval()
    return pipe, pipe(make_inputs(), **options)


@pytest.mark.parametrize("task", TASKS)
def test_same_answers_as_cpu(task: str, device: str, indexed_device: torch.device, tmp_path: Path) -> None:
    _, expected = run_task(task, "cpu", tmp_path)
    pipe, actual = run_task(task, device, tmp_path)
    assert pipe.device == torch.device(device)
    assert pipe.model.device == indexed_device
    assert len(actual) == 2
    assert json.dumps(actual[0]) != json.dumps(actual[1]), "both inputs give one answer: this comparison proves nothing"
    assert_same_answers(actual, expected)


@pytest.mark.neuron_only
def test_operators_ran_on_the_device(tmp_path: Path) -> None:
    """The answers were computed there, and nothing fell back to the host."""
    import torch_neuronx

    torch_neuronx.clear_op_tracking()
    run_task("fill-mask", "neuron", tmp_path)
    executed = set(torch_neuronx.get_executed_ops())
    assert executed & {"aten::addmm", "aten::linear", "aten::mm"}, executed
    assert executed & {"aten::native_layer_norm", "aten::layer_norm"}, executed


@pytest.mark.neuron_only
def test_other_core_by_string_and_by_device(tmp_path: Path) -> None:
    _, expected = run_task("feature-extraction", "cpu", tmp_path)
    for wanted in ("neuron:1", torch.device("neuron", 2)):
        pipe, actual = run_task("feature-extraction", wanted, tmp_path)  # type: ignore[arg-type]
        assert pipe.model.device == torch.device(wanted)
        assert_same_answers(actual, expected)


def test_whisper_timestamps(device: str) -> None:
    """Whisper's generation computes timestamps in float64 and its mel spectrogram features go through convolutions."""
    torch.manual_seed(0)
    timestamps = 200
    config = tf.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_mel_bins=80,
        max_source_positions=100,
        max_target_positions=64,
        init_std=0.1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    cpu_model = tf.WhisperForConditionalGeneration(config).eval()
    cpu_model.generation_config.no_timestamps_token_id = timestamps
    features = tf.WhisperFeatureExtractor(feature_size=80, chunk_length=2)(
        [sound["raw"] for sound in sounds()], sampling_rate=SAMPLING_RATE, return_tensors="pt"
    )
    options = {"return_timestamps": True, "return_segments": True, "max_new_tokens": 16}
    expected = cpu_model.generate(features.input_features, **options)
    model = cpu_model.to(device)
    actual = model.generate(features.input_features.to(device), **options)
    assert torch.equal(actual["sequences"].cpu(), expected["sequences"])
    for left, right in zip(actual["segments"], expected["segments"], strict=True):
        assert [(float(segment["start"]), float(segment["end"])) for segment in left] == [
            (float(segment["start"]), float(segment["end"])) for segment in right
        ]
