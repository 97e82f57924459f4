"""Optimizers: ten steps on the device end where the CPU ends, and the foreach and fused forms really run as such."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Adafactor

from .training import Sequences, tiny_llama

STEPS = 10
Parameters = Iterable[torch.nn.Parameter]
MakeOptimizer = Callable[[Parameters], torch.optim.Optimizer]


def named(function: Callable[..., torch.optim.Optimizer], **options: Any) -> MakeOptimizer:
    """An optimizer with fixed options."""
    return lambda parameters: function(parameters, **options)


ADAMW = {"lr": 1e-3, "weight_decay": 0.1}
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adamw": named(torch.optim.AdamW, **ADAMW),
    "adamw-foreach": named(torch.optim.AdamW, **ADAMW, foreach=True),
    "adamw-fused": named(torch.optim.AdamW, **ADAMW, fused=True),
    "adamw-amsgrad-fused": named(torch.optim.AdamW, **ADAMW, fused=True, amsgrad=True),
    "adam-fused": named(torch.optim.Adam, lr=1e-3, fused=True),
    "sgd": named(torch.optim.SGD, lr=0.1),
    "sgd-nesterov": named(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd-fused": named(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True),
    "adafactor": named(torch.optim.Adafactor, lr=1e-2),
    "adafactor-transformers": named(Adafactor, lr=1e-3, relative_step=False, scale_parameter=False),
    "adagrad": named(torch.optim.Adagrad, lr=1e-2),
    "rmsprop": named(torch.optim.RMSprop, lr=1e-3, momentum=0.9),
}


def batch(step: int, device: str) -> dict[str, torch.Tensor]:
    """The same four sequences for the same step: int64 [4, 24]."""
    data = Sequences()
    items = [data[(4 * step + row) % len(data)] for row in range(4)]
    return {key: torch.stack([item[key] for item in items]).to(device) for key in items[0]}


def train(
    device: str, make: MakeOptimizer, dtype: torch.dtype = torch.float32, clip: bool = False
) -> tuple[torch.nn.Module, torch.optim.Optimizer, list[float]]:
    """Trains the tiny Llama for `STEPS` steps; returns it with its optimizer and the losses."""
    model = tiny_llama().to(device, dtype)
    optimizer = make(model.parameters())
    losses = []
    for step in range(STEPS):
        loss = model(**batch(step, device)).loss
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, optimizer, losses


def assert_as_near(actual: torch.nn.Module, cpu: torch.nn.Module, exact: torch.nn.Module) -> None:
    """Distance of each parameter to the run in float64 is at most 3 times the CPU's own and 1e-5 of the parameter's norm.

    Optimizers that divide by the size of a gradient make rounding errors of gradients near zero visible: the CPU's own distance is 7e-5 of
    the norm with AdamW and 3e-3 with RMSprop.
    """
    for (name, ours), theirs, reference in zip(actual.named_parameters(), cpu.parameters(), exact.parameters(), strict=True):
        distance, allowed = (ours.detach().cpu() - reference.detach()).norm(), (theirs.detach() - reference.detach()).norm()
        assert distance <= 3 * allowed + 1e-5 * reference.detach().norm(), name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equal_to_cpu_after_ten_steps(name: str, device: str, indexed_device: torch.device) -> None:
    start = tiny_llama()
    model, optimizer, losses = train(device, OPTIMIZERS[name])
    cpu_model, _, cpu_losses = train("cpu", OPTIMIZERS[name])
    exact, _, exact_losses = train("cpu", OPTIMIZERS[name], torch.float64)
    assert_as_near(model, cpu_model, exact)
    for ours, theirs, reference in zip(losses, cpu_losses, exact_losses, strict=True):
        assert abs(ours - reference) <= 3 * abs(theirs - reference) + 1e-5 * reference
    moved = [not torch.equal(left.detach(), right.detach()) for left, right in zip(cpu_model.parameters(), start.parameters(), strict=True)]
    assert all(moved), "a parameter was not trained: this comparison proves nothing"
    state = [value for entry in optimizer.state.values() for value in entry.values() if isinstance(value, torch.Tensor) and value.dim() > 0]
    assert all(value.device == indexed_device for value in state)


@pytest.mark.parametrize("name", ["adamw", "adamw-fused", "sgd-nesterov"])
def test_clipped_steps_equal_cpu(name: str, device: str) -> None:
    model, _, losses = train(device, OPTIMIZERS[name], clip=True)
    cpu_model, _, cpu_losses = train("cpu", OPTIMIZERS[name], clip=True)
    assert losses == pytest.approx(cpu_losses, rel=1e-5)
    assert_as_near(model, cpu_model, train("cpu", OPTIMIZERS[name], torch.float64, clip=True)[0])


@pytest.mark.parametrize("name", ["adamw", "adamw-fused"])
def test_bfloat16_parameters(name: str, device: str) -> None:
    """Pure bfloat16: as close to the float32 run as the CPU's bfloat16 run is, by a factor of 1.5."""
    reference = torch.tensor(train("cpu", OPTIMIZERS[name])[2])
    cpu = torch.tensor(train("cpu", OPTIMIZERS[name], torch.bfloat16)[2])
    actual = torch.tensor(train(device, OPTIMIZERS[name], torch.bfloat16)[2])
    assert (actual - reference).norm() <= 1.5 * (cpu - reference).norm()


class OperatorLog(TorchDispatchMode):
    """Collects the names of the operators that reach the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.names.add(func.overloadpacket._qualified_op_name)
        return func(*args, **(kwargs or {}))


@pytest.mark.neuron_only
@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("adamw", "aten::_foreach_addcdiv_"),
        ("adamw-fused", "aten::_fused_adamw_"),
        ("adam-fused", "aten::_fused_adam_"),
        ("sgd", "aten::_foreach_add_"),
        ("sgd-fused", "aten::_fused_sgd_"),
    ],
)
def test_form_that_runs(name: str, operator: str) -> None:
    """torch picks the foreach form by itself here (on the CPU it would loop), and `fused=True` reaches the fused operator."""
    import torch_neuronx

    model = tiny_llama().to("neuron")
    optimizer = OPTIMIZERS[name](model.parameters())
    model(**batch(0, "neuron")).loss.backward()
    torch_neuronx.clear_op_tracking()
    with OperatorLog() as log:
        optimizer.step()
    assert operator in log.names
    if "_fused_" in operator:
        assert operator in torch_neuronx.get_executed_ops()


@pytest.mark.parametrize("name", ["adamw-fused", "sgd-nesterov", "adafactor"])
def test_state_moves_between_devices(name: str, device: str) -> None:
    """A state dict saved on the device continues on the CPU, and the reverse, as if nothing had happened."""
    for source, target in ((device, "cpu"), ("cpu", device)):
        model, optimizer, _ = train(source, OPTIMIZERS[name])
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
        buffer.seek(0)
        saved = torch.load(buffer, map_location=target, weights_only=True)
        moved = tiny_llama(seed=99).to(target)
        moved.load_state_dict(saved["model"])
        moved_optimizer = OPTIMIZERS[name](moved.parameters())
        moved_optimizer.load_state_dict(saved["optimizer"])
        for trained, stepper, where in ((model, optimizer, source), (moved, moved_optimizer, target)):
            trained(**batch(STEPS, where)).loss.backward()
            stepper.step()
        for left, right in zip(moved.parameters(), model.parameters(), strict=True):
            assert (left.detach().cpu() - right.detach().cpu()).norm() <= 1e-5 * right.detach().cpu().norm()


def test_grad_scaler(device: str) -> None:
    """Float16 autocast with a `GradScaler`: steps with an overflow are left out, the scale is halved, the others train."""
    model = tiny_llama().to(device)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=False)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**40)
    losses, scales = [], []
    for step in range(40):
        with torch.autocast(device, dtype=torch.float16):
            loss = model(**batch(step, device)).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
        if step == 0:
            assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), (
                "the overflowing step was not left out"
            )
    assert scales[0] == 2.0**39 and scales[-1] < scales[0]
    assert losses[-1] < 0.95 * losses[0]
