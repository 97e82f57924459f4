"""What the stress tests share: new interpreters, threads that start together, and the check that nothing was lost."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

CORES = torch.neuron.device_count()
TESTS = Path(__file__).resolve().parent.parent

# Variables that decide what a process sees of the device; a new interpreter gets only those that the test names.
DEVICE_VARIABLES = ("NEURON_", "SOFTNEURON_", "TORCH_NEURONX_", "TORCH_DEVICE_BACKEND_AUTOLOAD")


def environment(**variables: str) -> dict[str, str]:
    """The environment of a new interpreter: one thread for operators, the folder of the tests importable."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(DEVICE_VARIABLES)}
    return inherited | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"} | variables


def run(code: str, *, timeout: float = 120, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a new interpreter; returns the finished process, whatever it ended with."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(
        command,
        env=environment(**variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def succeeds(code: str, *, timeout: float = 120, cwd: Path | None = None, **variables: str) -> str:
    """Runs Python code that must exit with 0 and write no traceback; returns what it printed."""
    finished = run(code, timeout=timeout, cwd=cwd, **variables)
    assert finished.returncode == 0, f"exit code {finished.returncode}\n{finished.stdout}\n{finished.stderr}"
    assert "Traceback" not in finished.stderr, finished.stderr
    return finished.stdout.strip()


# Reads requests (one JSON object a line) and forks for each; the child leaves the loop, runs its code as the main program and ends as one.
NURSERY = """
import json, os, signal, sys
import torch
while True:
    request = sys.stdin.readline()
    if not request: sys.exit(0)
    request = json.loads(request)
    child = os.fork()
    if child == 0: break
    print(os.waitpid(child, 0)[1], flush=True)
for number, path in ((1, request["out"]), (2, request["err"])):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.environ.update(request["variables"])
signal.alarm(request["timeout"])
exec(compile(request["code"], "<forked>", "exec"))
"""


@functools.cache
def nursery() -> subprocess.Popen[str]:
    """An interpreter that has imported torch and not used the device: its forks start in milliseconds, where a new one takes seconds."""
    command = [sys.executable, "-c", NURSERY]
    process = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process


def run_forked(code: str, *, timeout: int = 300, **variables: str) -> subprocess.CompletedProcess[str]:
    """As `run`, in a fork of a process that has only imported torch, which ends as a main program does, with Python's own shutdown."""
    process = nursery()
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {"code": textwrap.dedent(code), "out": str(out), "err": str(err), "variables": variables, "timeout": timeout}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        status = os.waitstatus_to_exitcode(int(process.stdout.readline()))
        return subprocess.CompletedProcess("forked", status, out.read_text(), err.read_text())


def forked(code: str, *, timeout: int = 300, **variables: str) -> str:
    """As `succeeds`, by `run_forked`: for what does not depend on how an interpreter starts."""
    finished = run_forked(code, timeout=timeout, **variables)
    complaints = f"exit code {finished.returncode}\n{finished.stdout}\n{finished.stderr}"
    assert finished.returncode == 0 and "Traceback" not in finished.stderr, complaints
    return finished.stdout.strip()


@contextlib.contextmanager
def script(code: str, *, cwd: Path | None = None, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Starts Python code in a new interpreter whose output is piped; it is killed at the end of the block if it still runs."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    process = subprocess.Popen(
        command, env=environment(**variables), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that a script prints; fails with its complaints if it ended instead."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, stderr = process.communicate(timeout=60)
        raise AssertionError(f"the script ended with {process.returncode}: {stderr}")
    return line.strip()


def in_threads(count: int, work: Callable[[int], None], timeout: float = 120) -> None:
    """Runs `work(index)` in `count` threads that start together; raises the first error of any of them, or if one does not end."""
    barrier, errors = threading.Barrier(count), []

    def body(index: int) -> None:
        try:
            barrier.wait()
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a thread did not end"
    if errors:
        raise errors[0]


def held() -> list[dict[str, int]]:
    """What every core's allocator holds for tensors: bytes and blocks, by pool."""
    gc.collect()
    stats = [torch.neuron.memory_stats(core) for core in range(CORES)]
    groups = ("allocated_bytes", "active_bytes", "requested_bytes", "allocation", "active")
    names = [f"{group}.{pool}.current" for group in groups for pool in ("all", "small_pool", "large_pool")]
    return [{name: core[name] for name in names} for core in stats]


def assert_books_balance() -> None:
    """For every core and every quantity: allocated minus freed is current, and the pools add up."""
    for core in range(CORES):
        stats = torch.neuron.memory_stats(core)
        for name in [name for name in stats if name.endswith(".all.current")]:
            group = name.removesuffix(".all.current")
            for pool in ("all", "small_pool", "large_pool"):
                current, peak = stats[f"{group}.{pool}.current"], stats[f"{group}.{pool}.peak"]
                assert stats[f"{group}.{pool}.allocated"] - stats[f"{group}.{pool}.freed"] == current, f"core {core}: {group}.{pool}"
                assert 0 <= current <= peak, f"core {core}: {group}.{pool}"
            assert stats[f"{group}.small_pool.current"] + stats[f"{group}.large_pool.current"] == stats[f"{group}.all.current"], group
        in_use = sum(segment["allocated_size"] for segment in torch.neuron.memory_snapshot(core))
        assert in_use == stats["allocated_bytes.all.current"], f"core {core}: the blocks in use are not what the figures say"


def device_works() -> bool:
    """Whether every core still computes."""
    return all((torch.arange(6, device=f"neuron:{core}") * 2).sum().item() == 30 for core in range(CORES))
