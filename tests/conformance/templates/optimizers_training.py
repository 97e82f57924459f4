"""A small training run with any optimizer of `optim_db`, the same on every device, and the forms an optimizer has."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
from torch.utils._python_dispatch import TorchDispatchMode

from ..case import Case

STEPS = 10
FORMS: dict[str, dict[str, bool]] = {
    "default": {},
    "forloop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = torch.complex64

OptimizerCheck = Callable[..., int]


def forms(info: OptimizerInfo) -> list[str]:
    """The forms that an optimizer has beside its default one."""
    if "foreach" not in inspect.signature(info.optim_cls).parameters:
        return ["default"]
    return ["default", "forloop", *(form for form in ("foreach", "fused") if form in info.supported_impls)]


class Model(torch.nn.Module):
    """Two layers; unless the optimizer takes matrices only, also vectors, a 0-d parameter, an empty one and one without a gradient."""

    def __init__(self, dtype: torch.dtype, optimizer: type[torch.optim.Optimizer]) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        # Adafactor divides by the number of elements.
        extra = [(4,), (3,), (), (2, 2) if optimizer is torch.optim.Adafactor else (0, 2), (2, 2)]
        shapes = [(4, 5), (3, 4), *(extra if optimizer is not torch.optim.Muon else [])]
        drawn = [torch.randn(shape, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64) for shape in shapes]
        self.weights = torch.nn.ParameterList(torch.nn.Parameter((0.5 * t).to(dtype)) for t in drawn)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        first, second, *rest = self.weights
        hidden = inputs @ first.mT
        if rest:
            hidden = torch.tanh(hidden + rest[0])
            return (hidden @ second.mT + rest[1]) * rest[2] + rest[3].sum()
        return torch.tanh(hidden) @ second.mT


def inputs_for(step: int, dtype: torch.dtype) -> torch.Tensor:
    """The batch of a step: [6, 5]."""
    drawn = torch.randn(6, 5, generator=torch.Generator().manual_seed(step), dtype=torch.complex128 if dtype.is_complex else torch.float64)
    return drawn.to(dtype)


class Training:
    """A model, its optimizer, and steps."""

    def __init__(
        self, info: OptimizerInfo, options: dict[str, Any], device: torch.device, dtype: torch.dtype, groups: bool = False
    ) -> None:
        self.info, self.device, self.dtype = info, device, dtype
        self.model = Model(dtype, info.optim_cls).to(device)
        # A tensor among the options (lr, betas) may stay on the host, and must not be shared by two optimizers.
        self.optimizer = info.optim_cls(self.parameters(groups), **copy.deepcopy(options))
        self.losses: list[torch.Tensor] = []

    def parameters(self, groups: bool) -> Any:
        """The parameters, or groups of them with options of their own."""
        parameters = list(self.model.parameters())
        if not groups:
            return parameters
        return [{"params": parameters[:1], "lr": 0.02}, {"params": parameters[1:], "weight_decay": 0.05}]

    def loss(self, step: int) -> torch.Tensor:
        """Forward and backward."""
        self.optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss = self.model(inputs_for(step, self.dtype).to(self.device)).abs().pow(2).mean()
        loss.backward()
        if self.info.only_supports_sparse_grads:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad = parameter.grad.to_sparse()
        return loss.detach()

    def run(self, steps: range = range(STEPS), schedulers: list[Any] | None = None) -> Training:
        """Steps, every second one with a closure (all of them where the optimizer needs it)."""
        for step in steps:
            if self.info.step_requires_closure or step % 2:
                self.losses.append(self.optimizer.step(functools.partial(self.loss, step)))
            else:
                self.losses.append(self.loss(step))
                self.optimizer.step()
            for scheduler in schedulers or []:
                plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
                scheduler.step(*([self.losses[-1]] if plateau else []))
        return self

    def facts(self) -> list[Any]:
        """Parameters, losses and the optimizer's state; what it keeps on the host comes as numbers."""
        states = [self.optimizer.state[p] for p in self.model.parameters() if p in self.optimizer.state]
        states = [{key: plain(value) for key, value in entry.items()} for entry in states]
        rates = [float(group["lr"]) for group in self.optimizer.param_groups if group.get("lr") is not None]
        return [list(self.model.parameters()), [loss.detach() for loss in self.losses], states, rates]


def plain(value: Any) -> Any:
    """A count or rate as a number: forms differ in whether it is a tensor, and on which device."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.dim() == 0 and not value.is_complex() else value
    return type(value)(plain(item) for item in value) if isinstance(value, (list, tuple)) else value


class OperatorLog(TorchDispatchMode):
    """Collects the names of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket._qualified_op_name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def optimizer_cases(
    template: str,
    check: OptimizerCheck,
    *,
    each_form: bool = False,
    where: Callable[[OptimizerInfo], bool] = lambda info: True,
    dtypes: tuple[torch.dtype, ...] = (torch.float32,),
    quick: bool = True,
) -> Iterator[Case]:
    """A case for each optimizer and dtype, also for each form with `each_form` (`check(info, dtype, most, form)` then)."""
    for info in optim_db:
        if not where(info):
            continue
        for form in forms(info) if each_form else [None]:
            for dtype in dtypes:
                if dtype.is_complex and not info.supports_complex:
                    continue
                run = functools.partial(run_check, check, info, dtype, form)
                subject = f"optim.{info.name}" + (f".{form}" if form else "")
                yield Case(template, subject, dtype, run, "optimizers", quick=quick and dtype is dtypes[0])


def run_check(check: OptimizerCheck, info: OptimizerInfo, dtype: torch.dtype, form: str | None, most: int | None) -> int:
    """Run a check, in the form that it is about."""
    return check(info, dtype, most, *([form] if form else []))
