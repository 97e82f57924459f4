"""The text that the examples train on, its tokenizer, and its cutting into blocks of one length.

Fixed-length blocks matter on `neuron`: a compiled graph is made for one shape, so a batch never has a
shape of its own here (no padding is needed, and `dataloader_drop_last=True` drops the short last batch).
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TEXT_FILE = Path(__file__).resolve().parent / "data" / "pride_and_prejudice.txt"
END_OF_TEXT = "<|endoftext|>"


def read_text(path: Path = TEXT_FILE) -> str:
    """Return the file's prose with one paragraph a line and a blank line between paragraphs.

    The shipped file is hard-wrapped and marks emphasis as `_word_`; a language model would spend its few parameters on
    learning where lines were broken, so lines are joined again, and the marks and ornaments (`* * *`) go.

    Raises:
        FileNotFoundError: there is no file at `path`.
        UnicodeDecodeError: the file is not UTF-8.
    """
    raw = path.read_text(encoding="utf-8").replace("_", "")
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", raw))
    return "\n\n".join(p for p in paragraphs if p and set(p) - set("* "))


def split_text(text: str, held_out: float = 0.05) -> tuple[str, str]:
    """Return the text to train on and the last `held_out` (a fraction) of it, cut between two paragraphs."""
    cut = text.find("\n\n", int(len(text) * (1 - held_out)))
    return text[:cut], text[cut:].strip()


def train_tokenizer(text: str, vocab_size: int, context: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on `text`: every byte has a token, so no input is ever unknown.

    Args:
        text: what to learn the merges from.
        vocab_size: number of tokens, including the 256 bytes and the end-of-text token.
        context: tokens that the model can read at once, kept as the tokenizer's `model_max_length`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # By paragraph: the trainer spreads its input over threads item by item.
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=context,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


class BlockDataset(Dataset[dict[str, torch.Tensor]]):
    """A token stream cut into blocks of `block` tokens that do not overlap; what is left at the end is dropped.

    Each item is `{"input_ids": int64[block], "labels": int64[block]}` (the model shifts the labels itself).

    Raises:
        ValueError: the text is shorter than one block.
    """

    def __init__(self, text: str, tokenizer: PreTrainedTokenizerBase, block: int) -> None:
        ids = tokenizer(text, verbose=False)["input_ids"]
        if len(ids) < block:
            raise ValueError(f"the text has {len(ids)} tokens, fewer than one block of {block}")
        count = len(ids) // block
        self.blocks = torch.tensor(ids[: count * block], dtype=torch.int64).view(count, block)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}
