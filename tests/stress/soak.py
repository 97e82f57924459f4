"""A long mixed load in one process, and how its memory develops: `python tests/stress/soak.py --minutes 30`.

One round does a little of everything that a long-lived program does with the device: eager operators with changing shapes on all cores,
training with dropout and checkpointing, text generation with a dynamic and a static cache, compiled functions called with several shapes
and compiled anew, a DataLoader with worker processes and pinned memory, saving and loading, threads, and requests that fail. After each
round the device must hold exactly the bytes that it held before. Prints one JSON object with the figures; `--device cpu` gives the figures
of PyTorch itself for comparison, `--kinds compile` those of one kind of work alone.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 20
KINDS = ("eager", "train", "generate", "compile", "load_data", "save_and_load", "threads", "fail")


class Samples(Dataset[torch.Tensor]):
    """Rows of numbers, float32 [16]."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


class Load:
    """What the process keeps for the whole run, and one method for each kind of work.

    Attributes:
        device: "neuron" or "cpu".
        cores: the devices that eager work cycles over.
        kinds: the methods that make up a round.
        rounds: how many rounds were done.
    """

    def __init__(self, device: str, kinds: tuple[str, ...] = KINDS) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        self.device = device
        self.cores = [f"neuron:{core}" for core in range(torch.neuron.device_count())] if device == "neuron" else ["cpu"]
        self.kinds = kinds
        self.rounds = 0
        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 64), torch.nn.Dropout(0.1), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 16)]
        self.model = torch.nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        self.writer = LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=None)).to(device).eval()
        self.compiled = self.compile_anew()
        self.train(1)

    def eager(self) -> None:
        """Operators over tensors of many sizes, views, in-place writes and copies between cores."""
        for step in range(40):
            core = self.cores[step % len(self.cores)]
            rows, columns = 1 + (step * 7 + self.rounds) % 61, 1 + (step * 13) % 97
            x = torch.randn(rows, columns, device=core)
            y = (x @ x.T).softmax(-1)
            y[::2].mul_(2)
            y = torch.cat([y, y.flip(0)]).sort(dim=0).values.to(self.cores[(step + 1) % len(self.cores)], non_blocking=True)
            y.double().sum().item()
        large = torch.empty((8 + self.rounds % 5) * MIB, dtype=torch.uint8, device=self.cores[0]).fill_(1)
        large.view(torch.int32)[::3].sum().item()

    def train(self, steps: int = 10) -> None:
        """Training steps, every second one with activation checkpointing."""
        for step in range(steps):
            x = torch.randn(8 + step % 3, 16).to(self.device)
            y = checkpoint(self.model, x, use_reentrant=False) if step % 2 else self.model(x)
            (y - x).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def generate(self) -> None:
        """Sampled text with a dynamic cache, greedy text with a static one (not compiled: compiling is a kind of work of its own)."""
        prompt = torch.randint(1, 64, (2, 3 + self.rounds % 4)).to(self.device)
        self.writer.generate(prompt, max_new_tokens=8, do_sample=True)
        self.writer.generate(prompt, max_new_tokens=8, do_sample=False, cache_implementation="static", disable_compile=True)

    def compile_anew(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Forgets all compiled graphs and returns a function to compile, whose graph differs from round to round."""
        torch._dynamo.reset()
        factor = float(self.rounds)
        options = {"backend": "neuron", "dynamic": False} if self.device == "neuron" else {"backend": "aot_eager", "dynamic": False}

        def function(x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.layer_norm(x * factor + 1, (x.shape[-1],)).relu().sum(-1)

        return torch.compile(function, **options)

    def compile(self) -> None:
        """Compiled calls with four shapes, forward and backward; every tenth round compiles anew."""
        if self.rounds % 10 == 0:
            self.compiled = self.compile_anew()
        for rows in (2, 3, 5, 8):
            x = torch.randn(rows, 12, device=self.device, requires_grad=True)
            self.compiled(x).sum().backward()

    def load_data(self) -> None:
        """An epoch from two worker processes through pinned memory; every tenth round, as starting processes is slow."""
        if self.rounds % 10 != 3:
            return
        total = 0.0
        for batch in DataLoader(Samples(), batch_size=16, num_workers=2, pin_memory=True):
            total += batch.to(self.device, non_blocking=True).sum().item()
        assert total == 16 * sum(range(64))

    def save_and_load(self) -> None:
        """A checkpoint of model and optimizer to memory and back."""
        buffer = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, buffer)
        buffer.seek(0)
        state = torch.load(buffer, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def threads(self) -> None:
        """Four short-lived threads that compute and differentiate."""

        def work(index: int) -> None:
            x = torch.randn(32, 16 + index, device=self.cores[index % len(self.cores)], requires_grad=True)
            (x.T @ x).tanh().sum().backward()

        workers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def fail(self) -> None:
        """Calls that raise: shapes that do not fit, and more memory than there is."""
        x = torch.ones(3, 4, device=self.device)
        for call in (lambda: x @ x, lambda: torch.empty(1 << 50, dtype=torch.uint8, device=self.device), lambda: x.view(5)):
            try:
                call()
            except RuntimeError:
                continue
            raise AssertionError("the call should have failed")

    def round(self) -> None:
        """One round of everything."""
        for kind in self.kinds:
            getattr(self, kind)()
        self.rounds += 1
        gc.collect()


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def device_bytes(device: str) -> list[int]:
    """Bytes of live tensors on each core."""
    return [torch.neuron.memory_allocated(core) for core in range(torch.neuron.device_count())] if device == "neuron" else []


def median(values: list[int]) -> int:
    """Middle value."""
    return sorted(values)[len(values) // 2]


def soak(
    minutes: float, warm_up_rounds: int, device: str, progress: bool, kinds: tuple[str, ...] = KINDS, rounds: int | None = None
) -> dict[str, Any]:
    """Runs rounds of the given kinds of work after the warm-up: `rounds` if given, else for `minutes` and at least 20.

    Returns:
        rounds, seconds; resident memory in MiB after the warm-up and at the end (medians of a tenth of the rounds each), its growth, also
        in KiB a round, and the growth an hour of the second half alone; bytes by core before and after; the largest deviation of the
        latter in any round; threads and open files before and after.
    """
    torch.set_num_threads(1)
    logging.getLogger("torch_neuronx.compile").setLevel(logging.ERROR)  # it reports every new shape, which are wanted here
    load = Load(device, kinds)
    for _ in range(warm_up_rounds):
        load.round()
    before, files, alive = device_bytes(device), len(os.listdir("/proc/self/fd")), threading.active_count()
    resident: list[int] = []
    deviation, start, reported = 0, time.monotonic(), 0.0
    while len(resident) < (rounds or 20) or (rounds is None and time.monotonic() - start < minutes * 60):
        load.round()
        resident.append(resident_bytes())
        deviation = max([deviation, *(abs(now - then) for now, then in zip(device_bytes(device), before, strict=True))])
        elapsed = time.monotonic() - start
        if progress and elapsed - reported > 60:
            reported = elapsed
            print(f"{elapsed:6.0f} s {len(resident):6} rounds {resident[-1] / MIB:8.1f} MiB", flush=True)
    tenth = max(1, len(resident) // 10)
    first, middle, last = median(resident[:tenth]), median(resident[(len(resident) - tenth) // 2 :][:tenth]), median(resident[-tenth:])
    seconds = time.monotonic() - start
    return {
        "rounds": len(resident),
        "seconds": round(seconds, 1),
        "resident_first_mib": round(first / MIB, 2),
        "resident_last_mib": round(last / MIB, 2),
        "growth_mib": round((last - first) / MIB, 2),
        "growth_kib_per_round": round((last - first) / 1024 / (len(resident) - tenth), 2),
        "second_half_mib_per_hour": round((last - middle) / MIB / (seconds / 2 / 3600), 2),
        "device_bytes_before": before,
        "device_bytes_after": device_bytes(device),
        "device_bytes_deviation": deviation,
        "open_files": [files, len(os.listdir("/proc/self/fd"))],
        "threads": [alive, threading.active_count()],
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, help="this many rounds, however long they take")
    parser.add_argument("--warm-up", type=int, default=30, help="rounds before the first measurement")
    parser.add_argument("--device", choices=("neuron", "cpu"), default="neuron")
    parser.add_argument("--progress", action="store_true", help="print a line every minute")
    parser.add_argument(
        "--kinds", type=lambda text: tuple(text.split(",")), default=KINDS, help="kinds of work, by comma: " + ",".join(KINDS)
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.kinds) - set(KINDS):
        parser.error(f"no such kinds: {', '.join(sorted(unknown))}")
    figures = soak(arguments.minutes, arguments.warm_up, arguments.device, arguments.progress, arguments.kinds, rounds=arguments.rounds)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
