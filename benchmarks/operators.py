"""Latency of single operators on `neuron` against the same call on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.measure import Result, paired

ROUNDS = 21
REPEAT = 400


def calls(device: str) -> dict[str, Callable[[], object]]:
    """The calls of the issue's table, with their operands on `device`."""
    torch.manual_seed(0)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(device)

    a, b, target = tensor(32, 32), tensor(32, 32), tensor(32, 32)
    x, weight, bias = tensor(64, 64), tensor(64, 64), tensor(64)
    table, index = tensor(100, 64), torch.arange(16).to(device)
    heads = tensor(1, 4, 16, 32)
    return {
        "add": lambda: torch.add(a, b),
        "mul_": lambda: target.mul_(1.0),
        "linear 64x64": lambda: F.linear(x, weight, bias),
        "layer_norm": lambda: F.layer_norm(x, (64,), bias, bias),
        "softmax": lambda: torch.softmax(a, -1),
        "cat": lambda: torch.cat([a, b]),
        "mm 32x32": lambda: torch.mm(a, b),
        "sum": a.sum,
        "index_select": lambda: torch.index_select(table, 0, index),
        "embedding": lambda: F.embedding(index, table),
        "copy_": lambda: target.copy_(a),
        "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(heads, heads, heads),
        "view": lambda: a.view(1024),
        "transpose": lambda: a.transpose(0, 1),
        "empty": lambda: torch.empty(32, 32, device=device),
    }


def run() -> Iterator[Result]:
    """Each operator at most 1.10 times the CPU's latency, the median at most 1.00; with one thread and two."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        host, device = calls("cpu"), calls("neuron")
        ratios = []
        with torch.no_grad():
            for name in host:
                ratio, cpu, neuron = paired(host[name], device[name], rounds=ROUNDS, repeat=REPEAT)
                ratios.append(ratio)
                detail = f"cpu {cpu * 1e6:.2f} us, neuron {neuron * 1e6:.2f} us"
                yield Result(f"{name}, {threads} thread(s)", ratio, "x", 1.10, detail=detail)
        yield Result(f"median of operators, {threads} thread(s)", median(ratios), "x", 1.00)
