"""BERT-base (8 x 128 tokens) and ViT-B/16 (8 images) compiled, against the machine's FLOP peak and against Inductor on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import BertConfig, BertModel, PreTrainedModel, ViTConfig, ViTModel

from benchmarks.flops import attention_work, linear_work, total
from benchmarks.language import timed
from benchmarks.limits import machine_limits
from benchmarks.measure import Result

BATCH = 8
WORDS = 128


def model_and_input(name: str) -> tuple[PreTrainedModel, dict[str, torch.Tensor], int]:
    """A model in float32 on the CPU, its input, and rows for each item of the batch."""
    torch.manual_seed(0)
    if name == "BERT-base":
        return BertModel(BertConfig()).eval(), {"input_ids": torch.randint(0, 1000, (BATCH, WORDS))}, WORDS
    config = ViTConfig()
    rows = (config.image_size // config.patch_size) ** 2 + 1
    return ViTModel(config).eval(), {"pixel_values": torch.randn(BATCH, 3, config.image_size, config.image_size)}, rows


def measure(name: str, dtype: torch.dtype, threads: int) -> Iterator[Result]:
    """Share of the FLOP peak, and how much faster than Inductor."""
    torch.set_num_threads(threads)
    torch.compiler.reset()
    limits = machine_limits(threads)
    model, inputs, rows = model_and_input(name)
    model = model.to(dtype)
    inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
    size = torch.empty((), dtype=dtype).element_size()
    work = total(
        linear_work(model, BATCH * rows, skip=("pooler.dense",)),
        attention_work(model.config, rows, rows, size, causal=False, batch=BATCH),
    )
    inductor = torch.compile(model, backend="inductor", dynamic=False)
    rival = timed(lambda: inductor(**inputs), 5)
    device = model.to("neuron")
    inputs = {key: value.to("neuron") for key, value in inputs.items()}
    compiled = torch.compile(device, backend="neuron")
    own = timed(lambda: compiled(**inputs), 5)
    label = f"{name}, {str(dtype).removeprefix('torch.')}, {threads} thread(s)"
    limits = limits.at_best(machine_limits(threads))
    limit = work.seconds(limits.read_bandwidth, limits.flops(dtype))
    detail = f"{1e3 * own:.1f} ms, limit {1e3 * limit:.1f} ms, Inductor {1e3 * rival:.1f} ms"
    yield Result(f"{label}: of the FLOP peak", limit / own, "x", 0.75, at_most=False, detail=detail)
    yield Result(f"{label}: faster than Inductor", rival / own, "x", 1.0, at_most=False)


def run() -> Iterator[Result]:
    """Both models in bfloat16 and float32, two threads and one."""
    with torch.no_grad():
        for threads in (2, 1):
            for name in ("BERT-base", "ViT-B/16"):
                for dtype in (torch.bfloat16, torch.float32):
                    yield from measure(name, dtype, threads)
