"""The scripts that accelerate ships for users' machines (`accelerate.test_utils.scripts`), launched with one process.

Several processes need a process group, which the device does not have yet; of a script that insists on them, the parts for one run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEVICE = os.environ["ECOSYSTEM_DEVICE"]
SCRIPTS = "accelerate.test_utils.scripts"
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes=1", "--num_machines=1", "--dynamo_backend=no"]


def run(command: list[str], folder: Path) -> str:
    """Output of a command, which must succeed."""
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
    return result.stdout


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("script", ["test_script", "test_ops", "test_sync", "test_cli"])
def test_launched_script(script: str, precision: str, tmp_path: Path) -> None:
    run([*LAUNCH, f"--mixed_precision={precision}", "-m", f"{SCRIPTS}.{script}"], tmp_path)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_launched_script_runs_on_the_device(precision: str, tmp_path: Path) -> None:
    """The scripts themselves would pass on any device."""
    script = tmp_path / "where.py"
    script.write_text("from accelerate import Accelerator\nprint('device', Accelerator().device.type)\n", encoding="utf-8")
    assert f"device {DEVICE}" in run([*LAUNCH, f"--mixed_precision={precision}", str(script)], tmp_path)


@pytest.mark.parametrize("script", ["test_script", "test_ops", "test_sync"])
def test_script_without_launcher(script: str, tmp_path: Path) -> None:
    run([sys.executable, "-m", f"{SCRIPTS}.{script}"], tmp_path)


def test_parts_of_the_main_script(tmp_path: Path) -> None:
    """Each part of `test_script` but for its training check, which ends with float16."""
    parts = (
        "init_state_check process_execution_check rng_sync_check dl_preparation_check central_dl_preparation_check custom_sampler_check "
        "check_seedable_sampler check_seedable_sampler_with_data_seed test_split_between_processes_list "
        "test_split_between_processes_nested_dict test_split_between_processes_tensor test_split_between_processes_evenly "
        "test_trigger test_reinstantiated_state"
    )
    # The script's own `main` begins with the accelerator as well.
    start = "from accelerate import Accelerator\nAccelerator()\n"
    code = f"{start}from {SCRIPTS} import test_script as script\nfor part in {parts.split()!r}:\n    getattr(script, part)()\n"
    run([sys.executable, "-c", code], tmp_path)


@pytest.mark.parametrize("case", ["test_can_initialize", "test_clean_cuda_fork"])
def test_notebook_launcher(case: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", f"from {SCRIPTS} import test_notebook; test_notebook.{case}()"], tmp_path)


SINGLE_PROCESS_LOOP = f"""
from accelerate import Accelerator
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from {SCRIPTS} import test_distributed_data_loop as script

accelerator, dataset = Accelerator(), script.DummyDataset()
sampler = BatchSampler(RandomSampler(dataset), batch_size=script.BATCH_SIZE, drop_last=False)
common = {{"num_workers": script.NUM_WORKERS}}
for loader in (
    DataLoader(dataset, shuffle=False, batch_size=script.BATCH_SIZE, **common),
    DataLoader(dataset, shuffle=True, batch_size=script.BATCH_SIZE, **common),
    DataLoader(dataset, batch_sampler=sampler, **common),
):
    script.test_data_loader(loader, accelerator)
"""


def test_data_loop_with_one_process(tmp_path: Path) -> None:
    """Data loaders with worker processes, prepared by accelerate; the rest of the script insists on two processes."""
    run([sys.executable, "-c", SINGLE_PROCESS_LOOP], tmp_path)
