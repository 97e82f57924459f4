"""The scripts of `examples/distributed`, each by the command in its first line, and their `--help`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .launch import ROOT, free_port, kill_with_descendants, run_ranks, values

FOLDER = ROOT / "examples" / "distributed"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.read_text(encoding="utf-8").startswith("# torchrun"))
# What each script says when it went well, besides a loss that falls.
SAYS = {
    "generate_tensor_parallel.py": ["ranks    agree", "one core writes the same"],
    "page_train.py": ["neuron:0"],
    "train_ddp.py": ["replicas agree"],
    "train_expert_parallel.py": ["4 in all, 2 on each"],
    "train_fsdp.py": ["read back, bit for bit"],
    "train_pipeline.py": ["schedule 1f1b"],
    "train_sequence_parallel.py": [],
}


def run(command: list[str], timeout: float = 300) -> str:
    """Output of a command in the project's folder; it and its children end with the limit of time."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "HF_HUB_OFFLINE": "1",
        # torchrun's own name for --master-port: the command stays as it is written, and two runs on a host do not meet.
        "PET_MASTER_PORT": str(free_port()),
    }
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_with_descendants(process.pid)
            raise
    assert process.returncode == 0, f"{shlex.join(command)}\n{output[-6000:]}"
    return output


def test_every_script_is_listed() -> None:
    assert sorted(SAYS) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_command_as_written(script: str) -> None:
    """The first line is the command; the loss falls where one is printed."""
    first = (FOLDER / script).read_text(encoding="utf-8").splitlines()[0]
    output = run(shlex.split(first.removeprefix("# ")))
    for text in SAYS[script]:
        assert text in output, output[-6000:]
    # Without an end: the other rank may write its warnings into the line.
    found = re.search(r"^loss (\d+\.\d+) -> (\d+\.\d{3})", output, re.MULTILINE)
    if script.startswith("generate"):
        assert found is None
    else:
        assert found, output[-6000:]
        assert float(found[2]) < 0.9 * float(found[1]), output[-6000:]


def rank_runs(rank: int, script: str, *arguments: str) -> str:
    """What the script prints with these arguments, and the code it ends with; here everything it imports is loaded already."""
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(FOLDER))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(str(FOLDER / script), run_name="__main__")
        except SystemExit as end:
            return f"{printed.getvalue()}{end.code}"
    return printed.getvalue()


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script: str) -> None:
    (text,) = values(run_ranks(rank_runs, 1, script, "--help"))
    assert text.startswith("usage: ")
    assert text.endswith("0")


def test_start_without_torchrun() -> None:
    """The script says what to do."""
    (text,) = values(run_ranks(rank_runs, 1, "train_pipeline.py", env={"RANK": ""}))
    assert text == "start this script with torchrun: its first line has the command"


def test_wrong_number_of_ranks() -> None:
    (text,) = values(run_ranks(rank_runs, 1, "page_train.py"))
    assert text == "this script runs on 4 ranks, not 1"
