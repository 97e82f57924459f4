"""Checkpoints whose writing goes wrong: full disk, size limit, killed writer; what was there before stays, the device goes on."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from .helpers import forked, read_line, script

pytestmark = pytest.mark.usefixtures("nothing_lost")
MIB = 1 << 20


@pytest.fixture
def size_limit() -> Iterator[None]:
    """Files of this process end at 1 MiB, as a disk ends somewhere; the write fails with an error, not a signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def state() -> dict[str, torch.Tensor]:
    """8 MiB on two cores."""
    return {f"weight{index}": torch.full((MIB // 2,), float(index), device=f"neuron:{index % 2}") for index in range(4)}


def error_of(call: Any) -> str:
    with pytest.raises(Exception) as caught:
        call()
    return type(caught.value).__name__


def test_torch_save_beyond_the_limit(tmp_path: Path, size_limit: None) -> None:
    """The same error as for host tensors; afterwards the tensors are intact and another file can be written."""
    tensors = state()
    host = {name: tensor.cpu() for name, tensor in tensors.items()}
    assert error_of(lambda: torch.save(tensors, tmp_path / "a")) == error_of(lambda: torch.save(host, tmp_path / "b"))
    assert all(torch.equal(tensors[name].cpu(), host[name]) for name in host)
    torch.save(tensors["weight1"][:1000].clone(), tmp_path / "small")
    assert torch.equal(torch.load(tmp_path / "small", map_location="neuron:1"), torch.ones(1000, device="neuron:1"))


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_save_on_a_full_device(zipped: bool) -> None:
    tensors = state()
    host = {name: tensor.cpu() for name, tensor in tensors.items()}
    ours, theirs = (
        error_of(lambda what=what: torch.save(what, "/dev/full", _use_new_zipfile_serialization=zipped)) for what in (tensors, host)
    )
    assert ours == theirs


def test_safetensors_beyond_the_limit(tmp_path: Path, size_limit: None) -> None:
    tensors = state()
    host = {name: tensor.cpu() for name, tensor in tensors.items()}
    assert error_of(lambda: save_file(tensors, tmp_path / "a")) == error_of(lambda: save_file(host, tmp_path / "b"))
    save_file({"x": tensors["weight2"][:1000].clone()}, tmp_path / "small")
    assert load_file(tmp_path / "small")["x"].tolist() == [2.0] * 1000


@pytest.mark.extra
def test_full_file_system(tmp_path: Path) -> None:
    """A file system of 2 MiB, where mounting is allowed."""
    mounted = os.system(f"mount -t tmpfs -o size=2m tmpfs {tmp_path} 2>/dev/null") == 0
    if not mounted:
        pytest.skip("mounting a file system needs privileges; the size limit covers the same errors")
    try:
        tensors = state()
        with pytest.raises((RuntimeError, OSError)):
            torch.save(tensors, tmp_path / "a")
        (tmp_path / "a").unlink(missing_ok=True)
        with pytest.raises(Exception, match=r"(?i)space|I/O|write"):
            save_file(tensors, tmp_path / "b")
        (tmp_path / "b").unlink(missing_ok=True)
        torch.save(tensors["weight1"][:1000].clone(), tmp_path / "c")
        assert torch.load(tmp_path / "c").device.type == "neuron"
    finally:
        os.system(f"umount {tmp_path}")


TRAIN = """
import resource, signal, sys, torch
from pathlib import Path
from hf.training import make_trainer
folder = Path({folder!r})
trainer = make_trainer(folder, max_steps=6, save_strategy="steps", save_steps=2, logging_steps=6)
"""


@pytest.mark.extra
def test_trainer_checkpoint_beyond_the_limit(tmp_path: Path) -> None:
    """Training stops with the error of writing; the earlier checkpoint is whole, and training resumes from it."""
    out = forked(
        TRAIN.format(folder=str(tmp_path))
        + """
from transformers import TrainerCallback
class Limit(TrainerCallback):
    def on_save(self, args, state, control, **_):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
trainer.add_callback(Limit())
try: trainer.train(); print("no error")
except Exception as error: print("failed at", trainer.state.global_step)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
again = make_trainer(folder, max_steps=6, save_strategy="no")
again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
print(again.state.global_step, str(again.model.device))
"""
    )
    assert [line for line in out.splitlines() if not line.startswith("{")] == ["failed at 4", "6 neuron:0"]


WRITERS = {
    "torch.save": 'torch.save(state, folder / "new")',
    "safetensors": 'save_file(state, folder / "new")',
    "legacy": 'torch.save(state, folder / "new", _use_new_zipfile_serialization=False)',
}


@pytest.mark.parametrize("writer", ["torch.save", *(pytest.param(name, marks=pytest.mark.extra) for name in ("safetensors", "legacy"))])
def test_writer_that_is_killed(writer: str, tmp_path: Path) -> None:
    """The process is killed while it writes again and again: what it left is refused or whole, never loaded with wrong numbers."""
    code = f"""
    import torch
    from pathlib import Path
    from safetensors.torch import save_file
    folder, turn = Path({str(tmp_path)!r}), 0
    while True:
        turn += 1
        state = {{str(index): torch.full((2_000_000,), float(turn), device="neuron") for index in range(4)}}
        if turn == 2: print("writing", flush=True)
        {WRITERS[writer]}
    """
    with script(code) as process:
        assert read_line(process) == "writing"
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    try:
        loaded = load_file(tmp_path / "new") if writer == "safetensors" else torch.load(tmp_path / "new", map_location="neuron:2")
    except Exception:
        return
    assert all(tensor.min() == tensor.max() and tensor.numel() == 2_000_000 for tensor in loaded.values())
