"""Copies between host and device against memcpy of the same bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import torch

from benchmarks.measure import Result, paired

BYTES = 64 << 20
ROUNDS = 15


def run() -> Iterator[Result]:
    """64 MiB contiguous, to the device and back, at least 0.9 of memcpy's bandwidth; with one thread and two."""
    host = torch.ones(BYTES // 4)
    other = torch.zeros_like(host)
    device = host.to("neuron")
    libc = ctypes.CDLL(None)
    libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def memcpy() -> None:
        libc.memcpy(other.data_ptr(), host.data_ptr(), BYTES)

    directions: dict[str, Callable[[], object]] = {
        "host to device, 64 MiB": lambda: device.copy_(host),
        "device to host, 64 MiB": lambda: other.copy_(device),
    }
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, call in directions.items():
            ratio, plain, ours = paired(memcpy, call, rounds=ROUNDS)
            yield Result(
                f"{name}, {threads} thread(s)",
                1 / ratio,
                "x",
                0.9,
                at_most=False,
                detail=f"memcpy {BYTES / plain / 1e9:.1f} GB/s, copy_ {BYTES / ours / 1e9:.1f} GB/s",
            )
