"""The folder of compiled programs: damaged files, full and read-only disks, killed and concurrent processes. Results stay right."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from .helpers import environment, run_forked, script

# Compiles functions that differ by a number, checks each result, and prints the counters of the caches.
COMPILE = """
import json, torch
from torch_neuronx.neuron_dynamo_backend import cache_statistics
x = torch.arange(8.0, device="neuron").reshape(2, 4)
for number in range({first}, {last}):
    torch._dynamo.reset()
    result = torch.compile(lambda t: (t * number + 1).relu().sum(1), backend="neuron")(x)
    assert torch.equal(result, (x * number + 1).relu().sum(1)), number
print(json.dumps(cache_statistics()))
"""


def compile_in(folder: Path, count: int = 6, first: int = 0, **variables: str) -> tuple[dict[str, int], str]:
    """Run COMPILE with its programs in `folder`; give the counters and what was written to stderr."""
    variables = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "torch")} | variables
    finished = run_forked(COMPILE.format(first=first, last=first + count), **variables)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1]), finished.stderr


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program"))


def mounted(options: str, folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code where a small file system, made for it alone, is mounted on `folder`."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a small disk")
    command = f"mount -t tmpfs -o {options} tmpfs '{folder}' && exec \"$@\""
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", command, "sh", sys.executable, "-c", textwrap.dedent(code)],
        env=environment(TORCH_NEURONX_NEFF_CACHE_DIR=str(folder), **variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_files_damaged_in_every_way(tmp_path: Path) -> None:
    folder = tmp_path / "neff"
    compile_in(folder, 12)
    files = entries(folder)
    whole = [file.read_bytes() for file in files]
    rng = random.Random(0)
    for index, file in enumerate(files):
        content = bytearray(whole[index])
        match index % 6:
            case 0:
                content = content[: rng.randrange(len(content))]
            case 1:
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            case 2:
                content = bytearray(rng.randbytes(1000))
            case 3:
                content += b"more"
            case 4:
                content = bytearray(whole[(index + 1) % len(whole)])
            case 5:
                content = bytearray()
        file.write_bytes(content)
    found, stderr = compile_in(folder, 12)
    assert found["PersistentHits"] == 0 and found["PersistentMisses"] == 12
    assert sum(stderr.count(file.name) for file in files) == 12, stderr
    assert [file.read_bytes() for file in files] == whole
    assert compile_in(folder, 12) == (compile_in(folder, 12)[0], "")


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "neff"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "below").mkdir()
    os.mkfifo(folder / "pipe.program")
    (folder / "broken.program").symlink_to(folder / "nowhere")
    found, stderr = compile_in(folder, SOFTNEURON_NEFF_CACHE_BYTES="1M")
    assert found["PersistentMisses"] == 6 and stderr == ""
    assert (folder / "notes.txt").read_text() == "mine" and (folder / "below").is_dir()


def test_a_full_disk(tmp_path: Path) -> None:
    finished = mounted("size=8k", tmp_path, COMPILE.format(first=0, last=12))
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("No space left on device") == 1 and "TORCH_NEURONX_NEFF_CACHE_DIR" in finished.stderr


def test_a_read_only_disk(tmp_path: Path) -> None:
    finished = mounted("ro", tmp_path, COMPILE.format(first=0, last=4))
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("Read-only file system") == 1


def test_a_folder_without_permission(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the read-only disk is tested instead")
    folder = tmp_path / "neff"
    compile_in(folder, 2)
    folder.chmod(0o500)
    try:
        found, stderr = compile_in(folder, 4)
        assert found["PersistentHits"] == 2 and stderr.count("Permission denied") == 1
    finally:
        folder.chmod(0o700)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "neff"
    code = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    finished = run_forked(
        COMPILE.format(first=0, last=3)
        .replace("print(json", "resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)); print(json")
        .replace("x = torch", code + "x = torch", 1),
        TORCH_NEURONX_NEFF_CACHE_DIR=str(folder),
    )
    # The hard limit cannot be raised again by everybody, so the counters may be cut off; what matters is how the programs fared.
    assert "AssertionError" not in finished.stderr and finished.stderr.count("File too large") <= 1
    assert not list(folder.glob("*.program")) and not list(folder.glob("*.tmp"))


def test_a_folder_that_disappears(tmp_path: Path) -> None:
    folder = tmp_path / "neff"
    code = COMPILE.format(first=0, last=3) + f"\nimport shutil; shutil.rmtree({str(folder)!r})\n" + COMPILE.format(first=3, last=6)
    finished = run_forked(code, TORCH_NEURONX_NEFF_CACHE_DIR=str(folder))
    assert finished.returncode == 0 and finished.stderr == "", finished.stderr
    assert len(entries(folder)) == 3


@pytest.mark.parametrize("limit", ["1G", "4K"])
def test_processes_killed_while_they_write(tmp_path: Path, limit: str) -> None:
    folder = tmp_path / "neff"
    code = COMPILE.format(first=0, last=10_000).replace("    assert torch", "    print(number, flush=True)\n    assert torch")
    rng = random.Random(1)
    for _ in range(3):
        with script(code, TORCH_NEURONX_NEFF_CACHE_DIR=str(folder), SOFTNEURON_NEFF_CACHE_BYTES=limit) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.random())
            process.send_signal(signal.SIGKILL)
            process.wait(60)
    count = len(entries(folder))
    assert count > 0
    found, stderr = compile_in(folder, 30, SOFTNEURON_NEFF_CACHE_BYTES=limit)
    assert stderr == "", "a killed process left an entry that is not whole"
    if limit == "1G":
        assert found["PersistentHits"] == min(count, 30)


@pytest.mark.parametrize("limit", ["1G", "4K"])
def test_processes_at_once(tmp_path: Path, limit: str) -> None:
    folder = tmp_path / "neff"
    variables = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(folder), "SOFTNEURON_NEFF_CACHE_BYTES": limit}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COMPILE.format(first=0, last=20)],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0 and stderr == "", stderr
    sizes = [file.stat().st_size for file in entries(folder)]
    assert list(folder.glob("*.tmp")) == []
    if limit == "1G":
        assert len(sizes) == 20
        assert compile_in(folder, 20)[0]["PersistentHits"] == 20
    else:
        assert 0 < sum(sizes) <= 3 * 4096  # each process counts what it wrote since its last look


def test_a_lock_that_somebody_holds(tmp_path: Path) -> None:
    """The removal of old entries is left to whoever holds the lock; nobody waits."""
    import fcntl

    folder = tmp_path / "neff"
    compile_in(folder, 1)
    (lock,) = folder.glob("*.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _, stderr = compile_in(folder, 8, SOFTNEURON_NEFF_CACHE_BYTES="1K")
        assert stderr == "" and len(entries(folder)) == 8
    compile_in(folder, 1, first=8, SOFTNEURON_NEFF_CACHE_BYTES="1K")
    assert sum(file.stat().st_size for file in entries(folder)) <= 1024
    shutil.rmtree(folder)
