"""Exceptions, Ctrl-C and the end of the process in the middle of training: the device stays usable and nothing hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from .helpers import TEST_DEVICE, package_parent, run_json
from .training import curve, make_trainer, train_on

pytestmark = pytest.mark.neuron_only


def fail_in_forward(trainer: Any, error: Callable[[], None]) -> None:
    """Fails in the forward pass of the third step."""
    calls: list[int] = []

    def hook(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            error()

    trainer.model.model.layers[1].register_forward_hook(hook)


def fail_in_backward(trainer: Any, error: Callable[[], None]) -> None:
    """Fails in the backward pass of the third step, on autograd's thread for the device."""
    calls: list[int] = []

    def hook(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            error()

    trainer.model.model.layers[0].mlp.up_proj.weight.register_hook(hook)


class _AtStep(TrainerCallback):
    """Fails between optimizer steps."""

    def __init__(self, error: Callable[[], None]) -> None:
        self.error = error

    def on_step_end(self, _args: Any, state: Any, _control: Any, **__: Any) -> None:
        """Fails after the third step."""
        if state.global_step == 3:
            self.error()


def fail_between_steps(trainer: Any, error: Callable[[], None]) -> None:
    """Fails after the third optimizer step."""
    trainer.add_callback(_AtStep(error))


def raise_error() -> None:
    """What a fault in user code looks like."""
    raise RuntimeError("a fault in the middle of training")


def press_ctrl_c() -> None:
    """What the terminal sends."""
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("place", [fail_in_forward, fail_in_backward, fail_between_steps])
@pytest.mark.parametrize(
    ("error", "expected"), [(raise_error, RuntimeError), (press_ctrl_c, KeyboardInterrupt)], ids=["exception", "ctrl-c"]
)
def test_interrupted_training(place: Any, error: Any, expected: type[BaseException], tmp_path: Path, nothing_lost: None) -> None:
    """The error arrives as itself, memory comes back, and a new run trains as if nothing had been."""
    trainer = make_trainer(tmp_path)
    place(trainer, error)
    with pytest.raises(expected):
        trainer.train()
    del trainer
    again = train_on(TEST_DEVICE, tmp_path, max_steps=5)
    assert curve(again) == pytest.approx(curve(train_on("cpu", tmp_path, max_steps=5)), rel=1e-5)


def test_ctrl_c_from_outside(tmp_path: Path) -> None:
    """A training process that gets SIGINT ends with KeyboardInterrupt within seconds: no crash, no hang at exit."""
    script = tmp_path / "endless.py"
    script.write_text(
        f"""
import sys
sys.path.insert(0, {str(package_parent())!r})
from pathlib import Path
from hf.training import make_trainer
trainer = make_trainer(Path({str(tmp_path)!r}), "neuron", max_steps=1_000_000, logging_steps=1_000_000)
trainer.model.register_forward_hook(lambda *_: print("step", flush=True))
trainer.train()
"""
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline().strip() == "step"
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert time.monotonic() - start < 30
    # 1: what the Trainer on the CPU ends with, too. Anything else (-6, -11) is a crash.
    assert process.returncode in (1, 130, -signal.SIGINT), stderr
    assert stderr.strip().splitlines()[-1].startswith("KeyboardInterrupt"), stderr


def test_exit_with_everything_alive(tmp_path: Path) -> None:
    """A process may end with models, optimizers, workers, streams and threads that hold device tensors alive."""
    script = f"""
    import sys, threading, time, json, torch
    sys.path.insert(0, {str(package_parent())!r})
    from pathlib import Path
    from hf.training import make_trainer
    trainer = make_trainer(Path({str(tmp_path)!r}), "neuron", max_steps=3, dataloader_num_workers=1, dataloader_persistent_workers=True)
    trainer.train()
    keep = [torch.ones(1 << 20, device=f"neuron:{{core}}") for core in range(4)]
    stream, event = torch.neuron.Stream(), torch.neuron.Event()
    event.record(stream)

    def wait():
        mine = torch.ones(64, device="neuron") * 2
        started.set()
        time.sleep(1000)

    started = threading.Event()
    threading.Thread(target=wait, daemon=True).start()
    started.wait()
    print(json.dumps(trainer.state.global_step))
    """
    assert run_json(script) == 3
