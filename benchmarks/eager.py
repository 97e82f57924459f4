"""Eager generation and eager training of a model of about 50 million parameters, on `neuron` against the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.measure import Result, paired
from benchmarks.models import qwen3

ROUNDS = 5
BAR = 1.03


def generation(device: str) -> Callable[[], object]:
    """16 greedy tokens after a prompt of 32, inputs on the CPU."""
    model = qwen3(512, 14).to(device)
    prompt = torch.arange(32)[None]

    def call() -> object:
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False, pad_token_id=0)

    return call


def training_step(device: str) -> Callable[[], object]:
    """One optimisation step as `Trainer` makes it: forward, backward, clipping, fused AdamW; batch 2 of 64 tokens."""
    model = qwen3(512, 14).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.arange(128).view(2, 64).to(device)

    def call() -> object:
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return call


def run() -> Iterator[Result]:
    """Both at most 1.03 times the CPU's time; with one thread and two."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, make in (("eager generate", generation), ("eager training step", training_step)):
            ratio, cpu, neuron = paired(make("cpu"), make("neuron"), rounds=ROUNDS)
            yield Result(f"{name}, {threads} thread(s)", ratio, "x", BAR, detail=f"cpu {cpu:.3f} s, neuron {neuron:.3f} s")
