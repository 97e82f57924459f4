"""Memory over 10,000 training steps of a tiny model: resident memory flat, device statistics back at the start."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.measure import Result

STEPS = 10_000
WARM_UP = 500


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run() -> Iterator[Result]:
    """At most 2 MB of growth after the warm-up, and no byte allocated at the end that was not at the start."""
    torch.set_num_threads(1)
    gc.collect()
    allocated = torch.neuron.memory_allocated()

    def train() -> int:
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to("neuron")
        optimizer = torch.optim.AdamW(model.parameters())
        resident = 0
        for step in range(STEPS):
            if step == WARM_UP:
                resident = resident_bytes()
            loss = model(torch.randn(8, 16).to("neuron")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
        return resident_bytes() - resident

    growth = train()
    gc.collect()
    yield Result("resident memory growth over 10,000 steps", growth / 1e6, "MB", 2.0)
    yield Result("device bytes left after training", float(torch.neuron.memory_allocated() - allocated), "B", 0)
