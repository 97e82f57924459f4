"""What the distributed examples share: tiny models with random weights, made once, and the text of `examples/data` as bytes.

A token is a byte, so that no tokenizer is needed and every script is about its parallelism alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, MixtralConfig, PretrainedConfig, Qwen3Config

EXAMPLES = Path(__file__).resolve().parent.parent
TEXT_FILE = EXAMPLES / "data" / "pride_and_prejudice.txt"
MODELS = EXAMPLES.parent / "build" / "distributed-models"
SHAPE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}


def demo_model(kind: str = "qwen3") -> str:
    """Return the folder of a tiny model, after making it if it is missing; the ranks of a run wait for the one that does.

    Args:
        kind: "qwen3" (dense) or "mixtral" (four experts, two of them for each token).
    """
    configs: dict[str, PretrainedConfig] = {
        "qwen3": Qwen3Config(**SHAPE),
        "mixtral": MixtralConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2),
    }
    folder = MODELS / kind
    MODELS.mkdir(parents=True, exist_ok=True)
    with (MODELS / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "config.json").exists():
            torch.manual_seed(0)
            work = MODELS / f"{kind}.{os.getpid()}"
            AutoModelForCausalLM.from_config(configs[kind]).save_pretrained(work)
            work.replace(folder)
    return str(folder)


class Blocks(Dataset[dict[str, torch.Tensor]]):
    """The text cut into blocks of `length` bytes: `{"input_ids": int64[length], "labels": int64[length]}`."""

    def __init__(self, length: int = 64) -> None:
        raw = torch.frombuffer(bytearray(TEXT_FILE.read_bytes()), dtype=torch.uint8)
        self.blocks = raw[: len(raw) // length * length].view(-1, length)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.blocks[index].long()
        return {"input_ids": tokens, "labels": tokens.clone()}

    def batch(self, step: int, size: int) -> torch.Tensor:
        """Return the blocks of batch `step`: int64 [size, length] on the CPU."""
        rows = [(step * size + row) * 37 % len(self.blocks) for row in range(size)]
        return self.blocks[rows].long()


def encode(text: str) -> torch.Tensor:
    """Bytes of `text` as int64 [1, length]."""
    return torch.tensor([list(text.encode())])


def decode(tokens: torch.Tensor) -> str:
    """Text of int64 [length]; what is no text is shown as `?`."""
    return "".join(chr(token) if 32 <= token < 127 else "?" for token in tokens.tolist())


def say(text: str) -> None:
    """Print on rank 0 only."""
    if int(os.environ.get("RANK") or 0) == 0:
        print(text, flush=True)


def need_ranks(allowed: Sequence[int] = ()) -> int:
    """Return the number of ranks; end the program where it was not started by torchrun or runs on other numbers than `allowed`."""
    if not os.environ.get("RANK"):
        raise SystemExit("start this script with torchrun: its first line has the command")
    ranks = int(os.environ["WORLD_SIZE"])
    if allowed and ranks not in allowed:
        raise SystemExit(f"this script runs on {' or '.join(map(str, allowed))} ranks, not {ranks}")
    return ranks
