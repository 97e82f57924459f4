"""Collectives of the backend `neuron` beside Gloo on CPU tensors and memcpy, and their share of a training step and of a forward.

One line a figure that has a bar; the table of all sizes goes to standard output before them. Sizes are those of the whole tensor: input
of all_reduce, reduce_scatter, all_to_all and broadcast, output of all_gather.

The limit: memcpy of x bytes reads x and writes x, so a transport must move half the sum of what all ranks read of their inputs and write
of their outputs. That, divided by what memcpy copies a second on 64 MiB with as many processes at once as there are ranks (at most one a
core), is the shortest time; "of the limit" is that time by the measured one. A machine whose memory others use as well copies twice as
fast in one second as in the next: memcpy is measured beside the operation in every round, and the median of the rounds' ratios is taken.

    python -m benchmarks collectives           # everything
    python -m benchmarks.collectives --help    # a part of it, as a table or JSON
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.measure import Result
from benchmarks.models import qwen3

KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 16 * KIB, 256 * KIB, 4 * MIB, 64 * MIB, 256 * MIB)
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
ROUNDS = 7
# Seconds that one side of a round may take; at least one call.
ROUND_SECONDS = 0.1
MEMCPY_BYTES = 64 * MIB
TIMEOUT = 1500
# 50 million parameters
HIDDEN, LAYERS = 512, 16
BATCH, LENGTH = 4, 128


def moved_bytes(operation: str, size: int, ranks: int) -> float:
    """Bytes that any transport must move for a tensor of `size` bytes (see the head of this file)."""
    return {
        "all_reduce": ranks * size,
        "all_gather": (1 + ranks) * size / 2,
        "reduce_scatter": (1 + ranks) * size / 2,
        "all_to_all": ranks * size,
        "broadcast": ranks * size / 2,
    }[operation]


def make_call(operation: str, size: int, ranks: int, device: str) -> Callable[[], object]:
    """One synchronous call of `operation` on float32 tensors of `device`."""
    whole = torch.zeros(max(size // 4 // ranks, 1) * ranks, device=device)
    other = torch.zeros_like(whole)
    part = torch.zeros(len(whole) // ranks, device=device)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_single(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
    }
    return calls[operation]


def seconds_of(call: Callable[[], object], repeat: int) -> float:
    """Seconds a call, of the slowest rank; all begin together."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    mine = torch.tensor([(time.perf_counter() - start) / repeat], device="neuron", dtype=torch.float64)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return float(mine)


def repeats(call: Callable[[], object]) -> int:
    """Calls that fill a round, the same number on all ranks."""
    call()
    return max(1, min(500, int(ROUND_SECONDS / max(seconds_of(call, 1), 1e-6))))


def make_memcpy(ranks: int) -> Callable[[], object]:
    """One memcpy of MEMCPY_BYTES on this rank, if it is one of those that copy: at most one a core."""
    copying = dist.get_rank() < min(ranks, cores())
    # Memory of the device: on huge pages, where memcpy is fastest.
    source, target = (torch.ones(MEMCPY_BYTES, dtype=torch.uint8, device="neuron") for _ in range(2))
    libc = ctypes.CDLL(None)
    libc.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def copy() -> None:
        if copying:
            libc.memcpy(target.data_ptr(), source.data_ptr(), MEMCPY_BYTES)

    copy()
    return copy


def cores() -> int:
    """Cores of the machine."""
    return os.cpu_count() or 1


def measure_collectives(operations: tuple[str, ...], sizes: tuple[int, ...]) -> dict[str, Any]:
    """On each rank: both backends and memcpy alternate round by round; seconds a call by operation and size."""
    ranks = dist.get_world_size()
    copy, copied = make_memcpy(ranks), min(ranks, cores()) * MEMCPY_BYTES
    table: dict[str, Any] = {"rows": []}
    for operation in operations:
        for size in sizes:
            ours, gloo = make_call(operation, size, ranks, "neuron"), make_call(operation, size, ranks, "cpu")
            counts = repeats(ours), repeats(gloo)
            rounds = [
                (seconds_of(ours, counts[0]), seconds_of(copy, 3), seconds_of(gloo, counts[1]))
                for _ in range(ROUNDS if size <= 64 * MIB else 3)
            ]
            seconds, copying, reference = (median(column) for column in zip(*rounds, strict=True))
            moved = moved_bytes(operation, size, ranks)
            of_limit = median(moved / copied * b / a for a, b, _ in rounds)
            row = {
                "operation": operation,
                "bytes": size,
                "neuron": seconds,
                "gloo": reference,
                "memcpy": copied / copying,
                "of_limit": of_limit,
            }
            table["rows"].append(row)
            if dist.get_rank() == 0:
                print(
                    f"      {ranks} ranks {operation:<14} {label(size):>7}  neuron {seconds * 1e6:10.1f} us"
                    f"  gloo {reference * 1e6:10.1f} us"
                    f"  {reference / seconds:6.1f} x  {of_limit:5.2f} of the limit (memcpy {copied / copying / 1e9:.1f} GB/s)",
                    file=sys.stderr,
                    flush=True,
                )
    return table


def label(size: int) -> str:
    """A size as text."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def time_in_collectives(since: float) -> float:
    """Seconds since `since` in which this rank had a collective under way, from the flight recorder."""
    from torch_neuronx.distributed import flight_record

    spans = sorted(
        (entry["started"], entry["finished"])
        for entry in flight_record()["entries"]
        if entry["finished"] and entry["started"] and entry["started"] >= since
    )
    total, end = 0.0, 0.0
    for begin, stop in spans:
        total += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return total


def share(step: Callable[[], object], rounds: int = 5) -> tuple[float, float]:
    """Share of `step`'s time with a collective under way, of the slowest rank, and the step's seconds; medians over rounds."""
    step()
    shares, times = [], []
    for _ in range(rounds):
        dist.barrier()
        clock, start = time.time(), time.perf_counter()
        step()
        elapsed = time.perf_counter() - start
        values = torch.tensor([time_in_collectives(clock) / elapsed, elapsed], device="neuron", dtype=torch.float64)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        shares.append(float(values[0]))
        times.append(float(values[1]))
    return median(shares), median(times)


def training_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
    """Forward, backward, update."""
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def measure_fsdp(tokens: torch.Tensor) -> dict[str, float]:
    """Share of the collectives in an FSDP2 step of a 50M model; the same step without FSDP on every rank at once beside it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("neuron", (dist.get_world_size(),))
    plain, sharded = (qwen3(HIDDEN, LAYERS).to("neuron").train() for _ in range(2))
    parameters = sum(p.numel() for p in plain.parameters())
    for layer in sharded.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    plain_optimizer, optimizer = (torch.optim.AdamW(model.parameters(), lr=1e-4) for model in (plain, sharded))
    in_collectives, seconds = share(lambda: training_step(sharded, optimizer, tokens))
    _, without = share(lambda: training_step(plain, plain_optimizer, tokens))
    return {"parameters": parameters, "share": in_collectives, "seconds": seconds, "without": without}


def measure_tensor_parallel(tokens: torch.Tensor) -> dict[str, float]:
    """Share of the collectives in the forward of the same model, tensor parallel over all ranks."""
    from transformers import AutoModelForCausalLM
    from transformers.distributed.configuration_utils import DistributedConfig

    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    if dist.get_rank() == 0:
        qwen3(HIDDEN, LAYERS).save_pretrained(folder[0])
    dist.broadcast_object_list(folder, src=0, device=torch.device("cpu"))
    model = AutoModelForCausalLM.from_pretrained(folder[0], distributed_config=DistributedConfig(tp_size=dist.get_world_size()))
    with torch.no_grad():
        in_collectives, seconds = share(lambda: model(input_ids=tokens, use_cache=False))
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
    return {"share": in_collectives, "seconds": seconds}


def measure_models() -> dict[str, Any]:
    """Both of the above."""
    tokens = torch.randint(0, 8192, (BATCH, LENGTH), device="neuron")
    return {"fsdp": measure_fsdp(tokens), "tp": measure_tensor_parallel(tokens)}


def worker(options: argparse.Namespace) -> None:
    """The body of a rank: rank 0 writes what was measured to `--output`."""
    torch.set_num_threads(1)
    dist.init_process_group("cpu:gloo,neuron:neuron")
    found = measure_models() if options.models else measure_collectives(tuple(options.operations), tuple(options.sizes))
    if dist.get_rank() == 0:
        Path(options.output).write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def spawn(ranks: int, *arguments: str) -> dict[str, Any]:
    """Run `worker` on `ranks` processes and return what rank 0 measured.

    Raises:
        RuntimeError: a rank failed or did not end in time.
    """
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    output = Path(os.environ.get("TMPDIR", "/tmp")) / f"collectives.{os.getpid()}.json"
    processes = []
    for rank in range(ranks):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
        environment = {
            **os.environ,
            **{key: str(value) for key, value in place.items()},
            "MASTER_ADDR": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            # The recorder is how the time in collectives is measured: a step must fit into it.
            "TORCH_NEURONX_FLIGHT_RECORDER_SIZE": "4096",
        }
        command = [sys.executable, "-m", "benchmarks.collectives", "--worker", "--output", str(output), *arguments]
        processes.append(subprocess.Popen(command, env=environment))
    deadline = time.monotonic() + TIMEOUT
    try:
        codes = [process.wait(max(1.0, deadline - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}")
    found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    output.unlink()
    return found


def row(table: dict[str, Any], operation: str, size: int) -> dict[str, Any]:
    """The line of a table."""
    return next(entry for entry in table["rows"] if (entry["operation"], entry["bytes"]) == (operation, size))


def run() -> Iterator[Result]:
    """The bars: latency, bandwidth, four ranks against two, share of a step and of a forward."""
    two, four = spawn(2), spawn(4)
    for operation in OPERATIONS:
        small = row(two, operation, KIB)
        yield Result(
            f"{operation}, 1 KiB, 2 ranks: of Gloo's time",
            small["neuron"] / small["gloo"],
            "x",
            0.1,
            detail=f"{small['neuron'] * 1e6:.1f} us, Gloo {small['gloo'] * 1e6:.1f} us",
        )
    for operation in OPERATIONS:
        large = row(two, operation, 64 * MIB)
        detail = f"{large['neuron'] * 1e3:.1f} ms, Gloo {large['gloo'] * 1e3:.1f} ms, memcpy {large['memcpy'] / 1e9:.1f} GB/s"
        yield Result(f"{operation}, 64 MiB, 2 ranks: of the limit", large["of_limit"], "x", 0.8, at_most=False, detail=detail)
        yield Result(f"{operation}, 64 MiB, 2 ranks: faster than Gloo", large["gloo"] / large["neuron"], "x", 5, at_most=False)
    for operation in OPERATIONS:
        pair, quad = row(two, operation, 64 * MIB), row(four, operation, 64 * MIB)
        rates = [moved_bytes(operation, 64 * MIB, n) / entry["neuron"] for n, entry in ((2, pair), (4, quad))]
        yield Result(
            f"{operation}, 64 MiB: bytes moved a second, 4 ranks by 2",
            rates[1] / rates[0],
            "x",
            0.7,
            at_most=False,
            detail=f"{rates[0] / 1e9:.1f} and {rates[1] / 1e9:.1f} GB/s",
        )
    models = spawn(2, "--models")
    fsdp, tp = models["fsdp"], models["tp"]
    millions = fsdp["parameters"] / 1e6
    yield Result(
        f"FSDP2 step, {millions:.0f}M, 2 ranks: in collectives",
        100 * fsdp["share"],
        "%",
        10,
        detail=f"{fsdp['seconds'] * 1e3:.0f} ms a step; both ranks at once without FSDP, same batch each: {fsdp['without'] * 1e3:.0f} ms",
    )
    yield Result(
        f"tensor parallel forward, {millions:.0f}M, 2 ranks: in collectives",
        100 * tp["share"],
        "%",
        15,
        detail=f"{tp['seconds'] * 1e3:.0f} ms",
    )


def main() -> None:
    """A part of the measurements, by itself."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--operations", nargs="+", default=list(OPERATIONS), choices=OPERATIONS, help="(default: all)")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="bytes (default: 1 KiB to 256 MiB)")
    parser.add_argument("--models", action="store_true", help="the 50M model instead of collectives")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--output", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return
    arguments = ["--operations", *options.operations, "--sizes", *map(str, options.sizes)]
    found = spawn(options.ranks, *(["--models"] if options.models else arguments))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
