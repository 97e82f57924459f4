"""Runs functions and scripts on several ranks of this host, with a limit of time that holds.

`run_ranks` calls a function of a module in one process per rank. The processes are forked from a server that has imported torch,
so a start takes milliseconds; the device has not been touched there. `torchrun` runs a script as a user would.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Imported once by the server: five seconds of a core that no rank of the Hugging Face tests pays. What is not installed is left out.
PRELOADED = (
    "torch.distributed.tensor.parallel",
    "torch.distributed.fsdp",
    "torch._dynamo",
    "pytest",
    "transformers.trainer",
    "transformers.distributed.mixin",
    "transformers.models.llama.modeling_llama",
    "transformers.models.mixtral.modeling_mixtral",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.qwen3_moe.modeling_qwen3_moe",
    "accelerate",
    "datasets",
    "peft",
    "trl.trainer.sft_trainer",
)


def free_port() -> int:
    """Return a port of the loopback interface that was free a moment ago."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Outcome:
    """What became of one rank."""

    exit_code: int | None  # None: it did not end in time and was killed; negative: the signal
    value: Any  # what the function returned
    error: str  # the traceback, if it raised
    output: str  # standard output and error

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.error


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _rank_main(function: Callable[..., Any], rank: int, args: tuple[Any, ...], environment: dict[str, str], folder: str) -> None:
    os.setpgid(0, 0)
    output = os.open(f"{folder}/{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    import torch

    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    code = 0
    error, value = "", None
    try:
        value = function(rank, *args)
    except BaseException:
        error, code = traceback.format_exc(), 1
    with open(f"{folder}/{rank}.result", "wb") as file:
        pickle.dump((value, error), file)
    try:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    except BaseException:
        if not error:
            raise
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_ranks(
    function: Callable[..., Any],
    size: int,
    *args: Any,
    timeout: float = 60,
    env: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None,
    until: Callable[[], bool] | None = None,
) -> list[Outcome]:
    """Call `function(rank, *args)` in `size` processes with torchrun's environment and return the outcomes by rank.

    `env` adds variables, for all ranks or by rank. `function` belongs to a module. Whoever has not ended after `timeout` seconds, or when
    `until()` is true, is killed with what it started.
    """
    context = _context()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(size):
            environment = {
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "SOFTNEURON_INSTANCE_TYPE": "trn2.48xlarge",
                **(env(rank) if callable(env) else env or {}),
            }
            process = context.Process(target=_rank_main, args=(function, rank, args, environment, folder), daemon=False)
            process.start()
            processes.append(process)
        deadline = time.monotonic() + timeout
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline and not (until and until()):
            multiprocessing.connection.wait([process.sentinel for process in processes if process.is_alive()], 0.1)
        late = [process.exitcode is None for process in processes]
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join(10)
        outcomes = []
        for rank, process in enumerate(processes):
            try:
                value, error = pickle.loads(Path(f"{folder}/{rank}.result").read_bytes())
            except (OSError, EOFError, pickle.UnpicklingError):
                value, error = None, ""
            log = Path(f"{folder}/{rank}.log")
            output = log.read_text(errors="replace") if log.exists() else ""
            outcomes.append(Outcome(None if late[rank] else process.exitcode, value, error, output))
        return outcomes


def report(outcomes: Sequence[Outcome]) -> str:
    """Describe the ranks that did not end well, for assertion messages."""
    lines = []
    for rank, outcome in enumerate(outcomes):
        if not outcome.ok:
            state = "did not end in time" if outcome.exit_code is None else f"ended with {outcome.exit_code}"
            lines.append(f"== rank {rank} {state}\n{outcome.error}\n{outcome.output[-4000:]}")
    return "\n".join(lines)


def values(outcomes: Sequence[Outcome]) -> list[Any]:
    """Return what the ranks returned; fail if one did not end well."""
    assert all(outcome.ok for outcome in outcomes), report(outcomes)
    return [outcome.value for outcome in outcomes]


def kill_with_descendants(process: int) -> None:
    """End a process and all that it started, also what made a session of its own, as torchrun's ranks and their children do."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = [process]
    for one in found:
        found += children.get(one, [])
    for one in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def torchrun(
    ranks: int, script: str | Path, *args: str, timeout: float = 300, env: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `torchrun --nproc_per_node=<ranks> <script> <args>` on a rendezvous of its own; what it started ends with the limit of time."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={ranks}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{free_port()}",
        *options,
        str(script),
        *args,
    ]
    environment = {**os.environ, "SOFTNEURON_INSTANCE_TYPE": "trn2.48xlarge", "HF_HUB_OFFLINE": "1", **(env or {})}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_with_descendants(process.pid)
            output, _ = process.communicate()
            output += f"\n== killed after {timeout} s"
        return subprocess.CompletedProcess(command, process.returncode, output, "")
