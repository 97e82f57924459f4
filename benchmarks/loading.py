"""`from_pretrained(device_map="neuron")` against `device_map="cpu"`.

The bare call is not the same work on both sides: on the CPU the weights stay where they are, in the mapped file, and the first forward
pass reads them; on `neuron` the call copies them into device memory. So the time to the first logits is measured too.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from functools import partial

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from benchmarks.measure import Result, paired
from benchmarks.models import qwen3

ROUNDS = 7


def run() -> Iterator[Result]:
    """A checkpoint of about 1 GB in bfloat16: at most 1.10 times the CPU's time; with one thread and two."""
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model = qwen3(1536, 14, vocabulary=65536).to(torch.bfloat16)
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        model.save_pretrained(folder, max_shard_size="300MB")
        del model
        prompt = torch.arange(8)[None]

        def load(device: str, *, forward: bool) -> None:
            loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16", device_map=device)
            if forward:
                with torch.no_grad():
                    loaded(prompt.to(device)).logits.cpu()
            del loaded
            gc.collect()

        for threads in (1, 2):
            torch.set_num_threads(threads)
            for forward in (False, True):
                host, device = (partial(load, name, forward=forward) for name in ("cpu", "neuron"))
                ratio, cpu, neuron = paired(host, device, rounds=ROUNDS)
                name = "from_pretrained to first logits" if forward else "from_pretrained"
                detail = f"{size / 1e9:.2f} GB: cpu {cpu:.2f} s, neuron {neuron:.2f} s"
                yield Result(f"{name}, {threads} thread(s)", ratio, "x", 1.10, detail=detail)
