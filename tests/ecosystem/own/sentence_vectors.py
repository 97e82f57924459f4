"""sentence-transformers: encoding, similarity and fitting of a small model that is built here, on the device against the CPU."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, util
from sentence_transformers.sentence_transformer import losses, modules
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

DEVICE = os.environ["ECOSYSTEM_DEVICE"]
WORDS = "the a cat dog sat ran on under mat tree red blue house bird sings".split()
SENTENCES = ["the cat sat on the mat", "a dog ran under the tree", "the red bird sings", "a blue house", "the cat sat on a mat"]
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}


def save_bert(folder: Path, model_class: type, **arguments: object) -> str:
    """A BERT with random weights and a tokenizer of few words, as a user would have it on disk."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", model_max_length=32
    )
    torch.manual_seed(0)
    model_class(BertConfig(vocab_size=len(words), initializer_range=0.25, **SIZES, **arguments)).save_pretrained(folder)
    fast.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def bert(tmp_path: Path) -> str:
    return save_bert(tmp_path / "bert", BertModel)


def make_encoder(bert: str, device: str, pooling: str = "mean") -> SentenceTransformer:
    """Transformer, pooling and normalization on a device."""
    transformer = modules.Transformer(bert)
    pool = modules.Pooling(SIZES["hidden_size"], pooling_mode=pooling)
    return SentenceTransformer(modules=[transformer, pool, modules.Normalize()], device=device)


def test_device_is_the_one_of_this_run(bert: str) -> None:
    assert make_encoder(bert, DEVICE).device.type == DEVICE


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_encode(bert: str, pooling: str) -> None:
    expected = make_encoder(bert, "cpu", pooling).encode(SENTENCES, convert_to_tensor=True)
    found = make_encoder(bert, DEVICE, pooling).encode(SENTENCES, convert_to_tensor=True, batch_size=2)
    assert found.device.type == DEVICE
    assert expected.std() > 1e-2
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_encode_to_numpy(bert: str) -> None:
    expected = make_encoder(bert, "cpu").encode(SENTENCES)
    torch.testing.assert_close(
        torch.from_numpy(make_encoder(bert, DEVICE).encode(SENTENCES)), torch.from_numpy(expected), rtol=1e-4, atol=1e-5
    )


def test_similarity_and_search(bert: str) -> None:
    scores, hits = [], []
    for device in ("cpu", DEVICE):
        encoder = make_encoder(bert, device)
        vectors = encoder.encode(SENTENCES, convert_to_tensor=True)
        scores.append(encoder.similarity(vectors, vectors).cpu())
        hits.append(util.semantic_search(vectors[:2], vectors, top_k=3))
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-4, atol=1e-5)
    assert [[hit["corpus_id"] for hit in row] for row in hits[1]] == [[hit["corpus_id"] for hit in row] for row in hits[0]]


def test_fitting_steps(bert: str) -> None:
    """A few optimizer steps with in-batch negatives: the same losses, and vectors that moved the same way."""
    curves, vectors = [], []
    first = make_encoder(bert, "cpu")
    for device in ("cpu", DEVICE):
        encoder = copy.deepcopy(first).to(device).eval()
        loss_function = losses.MultipleNegativesRankingLoss(encoder)
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
        features = [
            {key: value.to(device) for key, value in encoder.tokenize(texts).items() if hasattr(value, "to")}
            for texts in (SENTENCES, SENTENCES[::-1])
        ]
        curve = []
        for _ in range(3):
            loss = loss_function([dict(feature) for feature in features], None)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        curves.append(curve)
        vectors.append(encoder.encode(SENTENCES, convert_to_tensor=True).cpu())
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(vectors[1], vectors[0], rtol=1e-2, atol=1e-3)
    assert curves[0][-1] < curves[0][0]


def test_saved_encoder_loads_onto_the_device(bert: str, tmp_path: Path) -> None:
    encoder = make_encoder(bert, DEVICE)
    encoder.save(str(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device=DEVICE)
    torch.testing.assert_close(loaded.encode(SENTENCES, convert_to_tensor=True), encoder.encode(SENTENCES, convert_to_tensor=True))


def test_cross_encoder(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "cross", BertForSequenceClassification, num_labels=1)
    pairs = [(SENTENCES[0], SENTENCES[4]), (SENTENCES[0], SENTENCES[1])]
    expected = torch.from_numpy(CrossEncoder(folder, device="cpu").predict(pairs))
    found = torch.from_numpy(CrossEncoder(folder, device=DEVICE).predict(pairs))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
