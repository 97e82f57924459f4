"""Optimizers end where the CPU ends, in every form; states move between devices; schedulers and errors are the CPU's."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, OptimizerInfo

from ..case import NothingToCompare, source
from ..compare import assert_same, assert_same_error, compare_calls, outcome
from ..samples import CPU, DEVICE, seed_all, spread
from .optimizers_training import COMPLEX, DTYPES, FORMS, STEPS, OperatorLog, Training, forms, optimizer_cases


def configurations(info: OptimizerInfo, most: int | None) -> tuple[dict[str, Any], ...]:
    """The options that the database tries, without capturable ones."""
    found = tuple(given.kwargs for given in info.optim_inputs_func("cpu"))
    return found if most is None else spread(found, most)


def check_steps(info: OptimizerInfo, dtype: torch.dtype, most: int | None, form: str) -> int:
    """Ten steps, parameters in one group or two."""
    compared = 0
    for options in configurations(info, most):
        for groups in (False, True) if info.supports_param_groups else (False,):
            given = {**options, **FORMS[form]}
            compare_calls(
                lambda o=given, g=groups: Training(info, o, DEVICE, dtype, g).run().facts(),
                lambda o=given, g=groups: Training(info, o, CPU, dtype, g).run().facts(),
                message=True,
            )
            compared += 1
    return compared


# PyTorch's Adafactor loops unless told otherwise, on any device.
LOOPS_BY_DEFAULT = {torch.optim.Adafactor}


def names_of_operators(info: OptimizerInfo, options: dict[str, Any], dtype: torch.dtype) -> set[str]:
    """What one step on the device calls."""
    training = Training(info, options, DEVICE, dtype)
    training.loss(0)
    with OperatorLog() as log:
        training.optimizer.step()
    return log.names


def check_forms(info: OptimizerInfo, dtype: torch.dtype, most: int | None) -> int:
    """All forms agree on the device; each runs as itself, and foreach is the default as PyTorch has it for devices of this kind."""
    if len(forms(info)) == 1:
        raise NothingToCompare("the optimizer has one form")
    compared = 0
    for options in configurations(info, most):
        runs = {form: outcome(lambda o={**options, **FORMS[form]}: Training(info, o, DEVICE, dtype).run()) for form in forms(info)}
        reference = runs["forloop"]
        assert reference.error is None, reference.error
        for form, run in runs.items():
            host_lr = isinstance(options.get("lr"), torch.Tensor)
            if run.error is not None and form == "foreach" and host_lr:
                continue  # refused by PyTorch on any device; `optimizer_steps` compares the error
            assert run.error is None, (form, run.error)
            for one, other in zip(run.result.model.parameters(), reference.result.model.parameters(), strict=True):
                torch.testing.assert_close(one, other, msg=lambda text, f=form: f"{f} differs from forloop: {text}")
            if not host_lr:
                names = names_of_operators(info, {**options, **FORMS[form]}, dtype)
                assert any(name.startswith("_fused_") for name in names) == (form == "fused"), (form, names)
                lists = form == "foreach" or (form == "default" and info.optim_cls not in LOOPS_BY_DEFAULT)
                assert form == "fused" or any(name.startswith("_foreach_") for name in names) == lists, (form, names)
            compared += 1
    return compared


def through_file(state: Any) -> Any:
    """A state dict written and read again, on the CPU."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, map_location="cpu", weights_only=True)


def check_state_dict(info: OptimizerInfo, dtype: torch.dtype, most: int | None, form: str) -> int:
    """Half of the steps, then the state goes to the other device, then the rest: as from the CPU to the CPU.

    That is not always as if nothing had happened: loading gives each state the dtype of its parameter.
    """
    first, rest = range(STEPS // 2), range(STEPS // 2, STEPS)

    def interrupted(options: dict[str, Any], origin: torch.device, destination: torch.device, transport: Callable[[Any], Any]) -> list[Any]:
        before, after = Training(info, options, origin, dtype).run(first), Training(info, options, destination, dtype)
        after.model.load_state_dict(before.model.state_dict())
        after.optimizer.load_state_dict(transport(before.optimizer.state_dict()))
        return after.run(rest).facts()

    compared = 0
    for options in configurations(info, most):
        given = {**options, **FORMS[form]}
        for transport in (lambda state: state, through_file, copy.deepcopy):
            for way in ((DEVICE, CPU), (CPU, DEVICE), (DEVICE, DEVICE)):
                compare_calls(
                    lambda o=given, w=way, t=transport: moved(interrupted(o, *w, t), DEVICE),
                    lambda o=given, t=transport: interrupted(o, CPU, CPU, t),
                    message=True,
                )
                compared += 1
    return compared


def check_copies(info: OptimizerInfo, dtype: torch.dtype, most: int | None) -> int:
    """Copied and pickled with its model, an optimizer goes on as it would have."""
    compared = 0
    for options in configurations(info, most):
        training = Training(info, options, DEVICE, dtype).run(range(3))
        pair = training.model, training.optimizer
        copies = [copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))]
        expected = moved(training.run(range(3, 6)).facts(), CPU)
        for model, optimizer in copies:
            training.model, training.optimizer, training.losses = model, optimizer, training.losses[:3]
            assert_same(training.run(range(3, 6)).facts(), expected)
            compared += 1
    return compared


def moved(tree: Any, device: torch.device) -> Any:
    """The tree with its tensors on a device; parameters stay parameters."""

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(value.detach().to(device))
        return value.to(device) if isinstance(value, torch.Tensor) else value

    return torch.utils._pytree.tree_map(leaf, tree)


def check_schedulers(info: OptimizerInfo, dtype: torch.dtype, most: int | None) -> int:
    """The database's schedulers, with a rate that is a number, a tensor on the host, or a tensor on the device."""

    def run(device: torch.device, rate: Any, factories: Any) -> Any:
        training = Training(info, {"lr": rate}, device, dtype)
        return training.run(schedulers=[factory(training.optimizer) for factory in factories]).facts()

    compared = 0
    for factories in info.scheduler_inputs:
        for rate, device_rate in (
            (0.01, 0.01),
            (torch.tensor(0.01), torch.tensor(0.01)),
            (torch.tensor(0.01), torch.tensor(0.01, device=DEVICE)),
        ):
            compare_calls(
                lambda r=device_rate, f=factories: run(DEVICE, place_rate(r), f), lambda r=rate, f=factories: run(CPU, place_rate(r), f)
            )
            compared += 1
    return compared


def place_rate(rate: Any) -> Any:
    """A copy of a rate: schedulers write into a tensor."""
    return rate.clone() if isinstance(rate, torch.Tensor) else rate


def check_errors(info: OptimizerInfo, dtype: torch.dtype, most: int | None) -> int:
    """The database's error inputs, on device parameters: same type and message, same warnings."""
    compared = 0
    seed_all()
    for error_input in info.optim_error_inputs_func(device="cpu", dtype=dtype):
        given = error_input.optimizer_error_input

        def run(device: torch.device, given: Any = given, at: OptimizerErrorEnum = error_input.error_on) -> None:
            params = given.params if given.params is not None else [torch.nn.Parameter(torch.ones(2, 2, dtype=dtype))]
            params = place_parameters(params, device)
            optimizer = info.optim_cls(params, **given.kwargs)
            if at is OptimizerErrorEnum.STEP_ERROR:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = torch.ones_like(parameter)
                optimizer.step()

        on_device, on_cpu = outcome(lambda r=run: r(DEVICE)), outcome(lambda r=run: r(CPU))
        assert_same_error(on_device, on_cpu)
        assert on_device.warnings == on_cpu.warnings
        compared += 1
    return compared


def place_parameters(params: Any, device: torch.device) -> Any:
    """The parameters on a device, still `Parameter`s, one copy for each."""
    copies: dict[int, torch.nn.Parameter] = {}

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return copies.setdefault(id(value), torch.nn.Parameter(value.detach().to(device)))

    return torch.utils._pytree.tree_map(leaf, params)


@source("optimizer_steps")
def step_cases():
    return optimizer_cases("optimizer_steps", check_steps, each_form=True, dtypes=(*DTYPES, COMPLEX))


@source("optimizer_forms")
def form_cases():
    return optimizer_cases("optimizer_forms", check_forms, dtypes=(torch.float64, torch.float32))


@source("optimizer_state_dict")
def state_dict_cases():
    return optimizer_cases("optimizer_state_dict", check_state_dict, each_form=True, dtypes=(torch.float32, torch.bfloat16), quick=False)


@source("optimizer_copies")
def copy_cases():
    # A copy of LBFGS lacks its list of parameters, on any device.
    return optimizer_cases("optimizer_copies", check_copies, where=lambda info: info.optim_cls is not torch.optim.LBFGS)


@source("optimizer_schedulers")
def scheduler_cases():
    return optimizer_cases("optimizer_schedulers", check_schedulers)


@source("optimizer_errors")
def error_cases():
    return optimizer_cases("optimizer_errors", check_errors, where=lambda info: info.optim_error_inputs_func is not None)
