"""Modules of `module_db` as subjects: built once on the CPU, copied to a device together with the inputs of a sample."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils._pytree import tree_map

from ..case import Case
from ..samples import CPU, Placement, place, seed_all, spread

ModuleCheck = Callable[["ModuleSubject", int | None], int]
# The database lists few modules in bfloat16, which is what the device is used with.
ALSO = {torch.bfloat16}


class ModuleSubject:
    """A module class in one dtype and one mode."""

    def __init__(self, info: ModuleInfo, dtype: torch.dtype, training: bool) -> None:
        self.info, self.dtype, self.training = info, dtype, training

    @property
    def name(self) -> str:
        """The module's name, with its mode where the database says that modes differ."""
        return self.info.name + ((".train" if self.training else ".eval") if self.info.train_and_eval_differ else "")

    def samples(self, most: int | None, requires_grad: bool = False) -> tuple[ModuleSample, ...]:
        """The samples of the database, at most `most` of them."""
        seed_all()
        made = self.info.module_inputs_func(self.info, device="cpu", dtype=self.dtype, requires_grad=requires_grad, training=self.training)
        made = tuple(made)
        return tuple(ModuleSample(self, one) for one in (made if most is None else spread(made, most)))


class ModuleSample:
    """One way to construct a module, with inputs for its forward."""

    def __init__(self, subject: ModuleSubject, given: Any) -> None:
        self.subject = subject
        self.constructor = (given.constructor_input.args, given.constructor_input.kwargs)
        forward = given.forward_input
        self.inputs = (forward.args, forward.kwargs) if forward is not None else None

    def construct(self, where: torch.device = CPU, default: torch.device | None = None, **factory: Any) -> torch.nn.Module:
        """Call the constructor, with the tensors and modules among its arguments on `where`; under a default device if one is given."""
        args, kwargs = place(tree_map(lambda leaf: moved(leaf, where), self.constructor), where)
        with contextlib.nullcontext() if default is None else default:
            return self.subject.info.module_cls(*args, **{**kwargs, **factory})

    @functools.cached_property
    def original(self) -> torch.nn.Module:
        """The module on the CPU, parameters in place. Never run it: copy it first (`on`)."""
        seed_all()
        module = self.construct()
        if self.subject.info.is_lazy and self.inputs is not None:
            module = module.to(self.subject.dtype)
            args, kwargs = place(self.inputs, CPU)
            with torch.no_grad():
                module(*args, **kwargs)
        return module.to(self.subject.dtype).train(self.subject.training)

    def on(self, device: torch.device) -> torch.nn.Module:
        """A copy of the module on `device`."""
        return copy.deepcopy(self.original).to(device)

    def on_with_inputs(self, device: torch.device, inputs: Any = None) -> tuple[torch.nn.Module, Any]:
        """Copies of the module and of its inputs on `device`."""
        return self.on(device), Placement(device)(self.inputs if inputs is None else inputs)


def moved(leaf: Any, device: torch.device) -> Any:
    """A copy of a module on `device`; anything else as it is."""
    return copy.deepcopy(leaf).to(device) if isinstance(leaf, torch.nn.Module) else leaf


def state(module: torch.nn.Module) -> dict[str, Any]:
    """Parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def forward(module: torch.nn.Module, inputs: Any) -> Any:
    """Call a module with the inputs of a sample."""
    args, kwargs = inputs
    return module(*args, **kwargs)


def module_cases(
    template: str,
    check: ModuleCheck,
    *,
    where: Callable[[ModuleInfo], bool] = lambda info: True,
    dtypes: Callable[[ModuleInfo], set[torch.dtype]] = lambda info: set(info.dtypes) | ALSO,
    modes: Callable[[ModuleInfo], tuple[bool, ...]] = lambda info: (True, False) if info.train_and_eval_differ else (True,),
    quick: bool = True,
) -> Iterator[Case]:
    """A case for each module, mode and dtype; the quick tier looks at float32."""
    for info in module_db:
        if not where(info):
            continue
        supported = dtypes(info)
        one = torch.float32 if torch.float32 in supported else min(supported, key=str)
        for training in modes(info):
            for dtype in sorted(supported, key=str):
                subject = ModuleSubject(info, dtype, training)
                run = functools.partial(check, subject)
                yield Case(template, subject.name, dtype, run, "modules", quick=quick and dtype is one)
