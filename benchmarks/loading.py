"""`from_pretrained(device_map="neuron")` against `device_map="cpu"`."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator

import torch
from transformers import AutoModelForCausalLM

from benchmarks.measure import Result, paired
from benchmarks.models import qwen3

ROUNDS = 5


def run() -> Iterator[Result]:
    """A checkpoint of about 1 GB in bfloat16: at most 1.10 times the CPU's time; with one thread and two."""
    with tempfile.TemporaryDirectory() as folder:
        model = qwen3(1536, 12, vocabulary=65536).to(torch.bfloat16)
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        model.save_pretrained(folder, max_shard_size="300MB")
        del model

        def load(device: str) -> None:
            AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16", device_map=device)
            gc.collect()

        for threads in (1, 2):
            torch.set_num_threads(threads)
            ratio, cpu, neuron = paired(lambda: load("cpu"), lambda: load("neuron"), rounds=ROUNDS)
            detail = f"{size / 1e9:.2f} GB: cpu {cpu:.2f} s, neuron {neuron:.2f} s"
            yield Result(f"from_pretrained, {threads} thread(s)", ratio, "x", 1.10, detail=detail)
