"""Functions that run in child processes of the tests: they are imported by name, as `spawn` needs."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch


def outcome(call: Any) -> str:
    """What a call ends with, as text that can be sent: "type: first line" of its error, or "done"."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "done"


def send_device_tensor(answers: Any) -> None:
    """Tries to send a device tensor that this process made, and says what came of it; then computes."""
    answers.put(outcome(lambda: answers.put(torch.ones(3, device="neuron"))))
    answers.put(outcome(lambda: ForkingPickler.dumps(torch.ones(3, device="neuron:1"))))
    answers.put((torch.ones(3, device="neuron") * 2).tolist())


def use_device(answers: Any, kept: Any = None) -> None:
    """Uses the device in a child, also through a tensor that it inherited; says what came of it. The host must still work."""
    answers.put(outcome(lambda: torch.ones(3, device="neuron")))
    if kept is not None:
        answers.put(outcome(lambda: ForkingPickler.dumps(kept)))
        answers.put(outcome(lambda: kept.sum().item()))
    answers.put((torch.ones(3) * 2).tolist())


INHERITED_USES = {
    "add_": lambda kept: kept.add_(1),
    "zero_": lambda kept: kept.zero_(),
    "copy_ from the host": lambda kept: kept.copy_(torch.ones(kept.shape)),
    "copy_ to the host": lambda kept: torch.empty(kept.shape).copy_(kept),
    "cpu": lambda kept: kept.cpu(),
    "tolist": lambda kept: kept.tolist(),
    "item": lambda kept: kept[0].item(),
    "normal_": lambda kept: kept.normal_(),
    "fill_": lambda kept: kept.fill_(3),
    "out=": lambda kept: torch.mul(kept, 2, out=kept),
}


def use_inherited(answers: Any, kept: torch.Tensor) -> None:
    """Uses an inherited device tensor in every way that needs no new memory; says what came of each."""
    for use in INHERITED_USES.values():
        answers.put(outcome(lambda use=use: use(kept)))


def double_on_device(tensors: Any, answers: Any) -> None:
    """Doubles host tensors on the device until None comes."""
    while (tensor := tensors.get()) is not None:
        answers.put((tensor.to("neuron") * 2).cpu())


def write_through_shared_memory(shared: torch.Tensor, start: float) -> None:
    """Copies device numbers into memory shared with the parent."""
    shared.copy_(torch.arange(len(shared), device="neuron") + start)
