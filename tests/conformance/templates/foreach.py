"""Operators over lists of tensors: the statements about operators hold for each of them, and for lists of unusual make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)
from torch.testing._internal.opinfo.core import ForeachFuncInfo

from ..case import Case, NothingToCompare, source
from ..compare import assert_same, compare_calls
from ..operators import OperatorCheck, some_samples, subject_of
from ..samples import CPU, DEVICE, arguments, call, place
from . import aliasing, derivatives, fake, layouts, values

FOREACH_DB: tuple[ForeachFuncInfo, ...] = (
    *foreach_unary_op_db,
    *foreach_binary_op_db,
    *foreach_pointwise_op_db,
    *foreach_reduce_op_db,
    *foreach_other_op_db,
)
# Lists of many tensors differ in nothing but length.
MOST = 3


def foreach_cases(
    template: str,
    check: OperatorCheck,
    *,
    where: Callable[[ForeachFuncInfo], bool] = lambda op: True,
    dtypes: Callable[[ForeachFuncInfo], set[torch.dtype]] = lambda op: set(op.dtypes),
    most: int | None = None,
    quick: bool = True,
) -> Iterator[Case]:
    """A case for each operator and dtype, with at most `most` samples in any tier; the quick one looks at two of one dtype."""
    for op in FOREACH_DB:
        if not where(op):
            continue
        supported = dtypes(op)
        one = torch.float32 if torch.float32 in supported else min(supported, key=str)
        for dtype in sorted(supported, key=str):
            run = functools.partial(limited, check, op, dtype, most)
            yield Case(template, subject_of(op), dtype, run, "foreach", quick=quick and dtype is one)


def limited(check: OperatorCheck, op: ForeachFuncInfo, dtype: torch.dtype, limit: int | None, most: int | None) -> int:
    """Run a check with no more samples than either limit."""
    return check(op, dtype, limit if most is None else 2)


def check_in_place(op: ForeachFuncInfo, dtype: torch.dtype, most: int | None) -> int:
    """The in-place form: same lists afterwards, over the same tensors; each counts a version."""

    def run(given: Any) -> Any:
        versions = [t._version for t in given[0]]
        returned = call(op.inplace_variant, given)
        same = returned is None or [one is other for one, other in zip(returned, given[0], strict=True)]
        return given, same, [t._version - before for t, before in zip(given[0], versions, strict=True)]

    samples = some_samples(op, dtype, most)
    for sample in samples:
        on_cpu, on_device = place(arguments(sample), CPU), place(arguments(sample), DEVICE)
        compare_calls(lambda g=on_device: run(g), lambda g=on_cpu: run(g))
    return len(samples)


Lists = Callable[[list[torch.Tensor]], list[torch.Tensor]]
EMPTY = 3  # places of empty tensors among others


def no_tensors(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """An empty list."""
    return []


def only_empty(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Nothing but tensors without elements."""
    return [t[:0] for t in given]


def interspersed(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Every third tensor without elements."""
    return [t[:0] if index % EMPTY == 0 else t for index, t in enumerate(given)]


def repeated(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensor at every place."""
    return [given[0] for _ in given]


def overlapping(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Views of one storage: each tensor begins a row later."""
    base = torch.cat([given[0], given[0]])
    return [base[index % 3 : index % 3 + given[0].shape[0]] for index in range(len(given))]


def mixed_dtypes(given: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of several dtypes in one list."""
    others = (torch.float32, torch.bfloat16, torch.int64, torch.float64)
    return [t.to(others[index % len(others)]) if not t.is_complex() else t for index, t in enumerate(given)]


KINDS: tuple[Lists, ...] = (no_tensors, only_empty, interspersed, repeated, overlapping, mixed_dtypes)


def with_lists(given: Any, change: Lists) -> Any:
    """The arguments with every list of tensors changed, scalars shortened to match."""
    length = len(change(list(given[0])))

    def changed(argument: Any) -> Any:
        if not isinstance(argument, (list, tuple)):
            return argument
        if argument and isinstance(argument[0], torch.Tensor):
            return change([t.detach() for t in argument])
        return list(argument[:length])

    first, args, kwargs = given
    return changed(first), tuple(changed(a) for a in args), kwargs


def check_lists(op: ForeachFuncInfo, dtype: torch.dtype, most: int | None) -> int:
    """Lists of unusual make, out of place and in place."""
    compared = 0
    for sample in some_samples(op, dtype, most):
        for kind in KINDS:
            given = with_lists(arguments(sample), kind)
            for form in {op.op, op.inplace_variant} - {None}:
                on_cpu, on_device = place(given, CPU), place(given, DEVICE)
                try:
                    happened = compare_calls(lambda g=on_device, f=form: call(f, g), lambda g=on_cpu, f=form: call(f, g))
                    if happened.error is None:
                        assert_same(on_device, on_cpu)
                except AssertionError as difference:
                    raise AssertionError(f"lists `{kind.__name__}`: {difference}") from difference
                compared += 1
    return compared


def check_devices(op: ForeachFuncInfo, dtype: torch.dtype, most: int | None) -> int:
    """A second list on the host: 0-d tensors may join, copies cross over, anything else is an error as for single tensors."""
    compared = 0
    for sample in some_samples(op, dtype, most):
        first, args, kwargs = arguments(sample)
        if not args or not isinstance(args[-1], (list, tuple)) or not isinstance(args[-1][0], torch.Tensor):
            continue
        for scalars in (True, False):
            last = [t.new_full((), 2) for t in args[-1]] if scalars else list(args[-1])
            placed = place((first, args[:-1]), DEVICE)
            on_device = (placed[0], (*placed[1], last), kwargs)
            on_cpu = place((first, (*args[:-1], last), kwargs), CPU)
            if not scalars and op.name != "_foreach_copy":
                try:
                    call(op.op, on_device)
                except RuntimeError as error:
                    assert "device" in str(error), error
                else:
                    raise AssertionError("lists on two devices were accepted")
            else:
                compare_calls(lambda g=on_device: call(op.op, g), lambda g=on_cpu: call(op.op, g))
            compared += 1
    if not compared:
        raise NothingToCompare("the operator takes one list")
    return compared


def float_dtypes(op: ForeachFuncInfo) -> set[torch.dtype]:
    """What is differentiated."""
    return {torch.float32, torch.float64, torch.bfloat16, torch.complex64} & set(op.dtypes)


@source("foreach_values")
def value_cases():
    return foreach_cases("foreach_values", values.check)


@source("foreach_inplace")
def in_place_cases():
    return foreach_cases("foreach_inplace", check_in_place, where=lambda op: op.inplace_variant is not None)


@source("foreach_lists")
def list_cases():
    return foreach_cases("foreach_lists", check_lists, most=MOST)


@source("foreach_devices")
def device_cases():
    return foreach_cases("foreach_devices", check_devices, most=MOST, dtypes=float_dtypes)


@source("foreach_aliasing")
def aliasing_cases():
    return foreach_cases("foreach_aliasing", aliasing.check, most=MOST, dtypes=float_dtypes)


@source("foreach_layouts")
def layout_cases():
    return foreach_cases("foreach_layouts", layouts.check, most=MOST, dtypes=float_dtypes, quick=False)


@source("foreach_fake")
def fake_cases():
    return foreach_cases("foreach_fake", fake.check, most=MOST, dtypes=float_dtypes, quick=False)


@source("foreach_backward")
def backward_cases():
    return foreach_cases(
        "foreach_backward", derivatives.checker("backward"), where=lambda op: op.supports_autograd, dtypes=float_dtypes, most=MOST
    )


@source("foreach_forward_mode")
def forward_mode_cases():
    return foreach_cases(
        "foreach_forward_mode",
        derivatives.checker("forward_mode"),
        where=lambda op: op.supports_forward_ad,
        dtypes=lambda op: {torch.float64},
        most=MOST,
    )
