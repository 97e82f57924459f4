"""Runs units, each in a process of its own per device, and goes on behind a test that takes the process down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from tests.ecosystem import paths
from tests.ecosystem.measured import State, read_state
from tests.ecosystem.outcomes import read_extent, read_outcomes, record_file, state_file
from tests.ecosystem.suites import Unit

# Exit codes of pytest that mean that it came to its end: all passed, some failed, files could not be imported, nothing to run.
CAME_TO_AN_END = {0, 1, 2, 5}
MOST_CRASHES = 25
# Process groups of the tests that run now.
RUNNING: set[int] = set()
STOPPED = threading.Event()


@dataclass(frozen=True)
class Limits:
    """Seconds one test and one process may take, and threads per process."""

    test_seconds: int = 300
    process_seconds: int = 5400
    threads: int = 1


@dataclass(frozen=True)
class Job:
    """One unit on one device."""

    suite: str
    unit: Unit
    device: str


def environment(job: Job, limits: Limits) -> dict[str, str]:
    """Variables of a test process: the same on both devices, but for the device itself."""
    variables = {
        **os.environ,
        **job.unit.environment,
        "ECOSYSTEM_DEVICE": job.device,
        "ECOSYSTEM_RECORD": str(record_file(job.suite, job.unit.name, job.device)),
        "PYTHONPATH": os.pathsep.join(str(path) for path in (paths.PLUGINS, *job.unit.sites)),
        "TRANSFORMERS_TEST_DEVICE": job.device,
        "OMP_NUM_THREADS": str(limits.threads),
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
        # Some tests start commands (`accelerate`) that lie beside the interpreter.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        # No hub: no downloads, a cache of this suite's own, and an address at which nothing listens for tests that turn the switch off.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HOME": str(paths.HUB),
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    if job.device == "cpu":
        variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    else:
        variables.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
        # One core, as there is one CPU: tests of several processes are another matter.
        variables["NEURON_RT_VISIBLE_CORES"] = "0"
    return variables


def _end(group: int) -> None:
    """End a test process and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _run_process(job: Job, limits: Limits, log: Path) -> int | None:
    """Exit code of one pytest process, None where it ran out of time."""
    command = [sys.executable, "-m", "pytest", f"--timeout={limits.test_seconds}", *job.unit.arguments]
    with log.open("a", encoding="utf-8") as output:
        # A process group of its own, so that what a test leaves running ends with it; a session would not inherit a low priority.
        own_group = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
        process = subprocess.Popen(
            command, cwd=job.unit.folder, env=environment(job, limits), stdin=subprocess.DEVNULL, stdout=output, stderr=output, **own_group
        )
        RUNNING.add(process.pid)
        try:
            return process.wait(timeout=limits.process_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            RUNNING.discard(process.pid)
            _end(process.pid)
            process.wait()


def _mark_crash(record: Path, reason: str) -> bool:
    """Write down that the test which was running took the process with it; False where no test was running."""
    running = None
    for text in record.read_text(encoding="utf-8").splitlines() if record.exists() else []:
        line = json.loads(text)
        running = line["test"] if "begins" in line else None
    if running is None:
        return False
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": running, "outcome": "crashed", "message": reason, "seconds": 0.0}) + "\n")
    return True


def is_finished(job: Job, *, keep: bool = False) -> bool:
    """Whether the job has run to its end with this build, these versions and this selection; with `keep`, with any build."""
    state = read_state(state_file(job.suite, job.unit.name, job.device))
    return state is not None and state.finished and State.now(job.unit, job.device).continues(state, any_build=keep)


def run_job(job: Job, limits: Limits) -> None:
    """Run a unit on a device until every test of it has an outcome; outcomes of another build or selection are forgotten first."""
    record = record_file(job.suite, job.unit.name, job.device)
    record.parent.mkdir(parents=True, exist_ok=True)
    log = record.with_suffix(".log")
    state = State.now(job.unit, job.device)
    file = state_file(job.suite, job.unit.name, job.device)
    if not state.continues(read_state(file)):
        for path in (record, log):
            path.unlink(missing_ok=True)
    state.write(file)
    for _ in range(MOST_CRASHES):
        code = _run_process(job, limits, log)
        if STOPPED.is_set():
            return
        if code in CAME_TO_AN_END:
            break
        reason = "the process ran out of time" if code is None else f"the process ended with exit code {code}"
        if not _mark_crash(record, reason):
            with record.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"test": f"{job.unit.name} (process)", "outcome": "crashed", "message": reason, "seconds": 0.0}) + "\n"
                )
            break
    replace(state, finished=True).write(file)


def run_jobs(jobs: list[Job], limits: Limits, workers: int, *, keep: bool = False) -> None:
    """Run all jobs that have not finished earlier, `workers` at a time, with a line of progress for each."""
    waiting = [job for job in jobs if not is_finished(job, keep=keep)]
    print(f"== {len(waiting)} test processes to run, {len(jobs) - len(waiting)} finished earlier", flush=True)
    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(run_job, job, limits): job for job in waiting}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                future.result()
                job = futures[future]
                outcomes = read_outcomes(job.suite, [job.unit.name], job.device).values()
                totals = Counter(outcome.outcome for outcome in outcomes)
                text = ", ".join(f"{number} {name}" for name, number in sorted(totals.items())) or "no tests"
                minutes = (time.monotonic() - began) / 60
                used = read_extent(job.suite, job.unit.name, job.device).cpu_seconds / 60
                progress = f"[{count}/{len(waiting)}, {minutes:.1f} min]"
                print(f"{progress} {job.suite} {job.unit.name} on {job.device}: {text} ({used:.1f} CPU minutes)", flush=True)
        except BaseException:
            # Interrupted: leave nothing running, and no outcome for what was; the next run goes on there.
            STOPPED.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for group in list(RUNNING):
                _end(group)
            raise
