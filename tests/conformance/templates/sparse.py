"""Sparse tensors (COO, CSR, CSC, BSR, BSC): every sparse sample gives the CPU's result or error, and the CPU's gradients."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import SkipTest

import torch
from torch.testing._internal.opinfo.core import OpInfo

from ..case import NothingToCompare, source
from ..compare import compare_calls
from ..operators import UNINITIALISED, backward_dtypes, forward_dtypes, operator_cases, some_samples
from ..samples import CPU, DEVICE, arguments, call, place, seed_all, tensors_of

LAYOUTS = {
    torch.sparse_coo: "coo",
    torch.sparse_csr: "csr",
    torch.sparse_csc: "csc",
    torch.sparse_bsr: "bsr",
    torch.sparse_bsc: "bsc",
}


def layouts_with_samples(op: OpInfo) -> list[torch.layout]:
    """The sparse layouts for which the database has samples of the operator; many are only said to support one."""
    functions = {layout: getattr(op, f"sample_inputs_sparse_{name}_func") for layout, name in LAYOUTS.items()}
    return [layout for layout, function in functions.items() if "unspecified" not in getattr(inspect.unwrap(function), "__name__", "")]


def sparse_samples(op: OpInfo, dtype: torch.dtype, most: int | None, requires_grad: bool) -> Iterator[Any]:
    """The sparse samples of an operator, at most `most` of each layout."""
    for layout in layouts_with_samples(op):
        seed_all()
        try:
            yield from itertools.islice(op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad), most)
        except SkipTest:  # the function has none of this dtype
            continue


def differentiate(op: OpInfo, given: tuple[Any, ...]) -> list[Any]:
    """Results, and gradients along them (sparse tensors have no random or constant fill)."""
    results = tensors_of(call(op.op, given))
    inputs = [t for t in tensors_of(given) if t.requires_grad]
    outputs = [t for t in results if t.requires_grad]
    if not inputs or not outputs:
        return results
    return [*results, *torch.autograd.grad(outputs, inputs, [t.detach().clone() for t in outputs], allow_unused=True)]


def checker(run: Callable[[OpInfo, tuple[Any, ...]], Any], requires_grad: bool) -> Callable[[OpInfo, torch.dtype, int | None], int]:
    """A check that compares what `run` gives on both devices."""

    def check(op: OpInfo, dtype: torch.dtype, most: int | None) -> int:
        compared = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the beta state of sparse layouts, once in a process
            for sample in sparse_samples(op, dtype, most, requires_grad):
                on_cpu, on_device = place(arguments(sample), CPU), place(arguments(sample), DEVICE)
                compare_calls(
                    lambda given=on_device: run(op, given),
                    lambda given=on_cpu: run(op, given),
                    message=True,
                    values=op.name not in UNINITIALISED,
                )
                compared += 1
        if not compared:
            raise NothingToCompare("the database has no sparse sample of the operator in this dtype")
        return compared

    return check


def check_any_operator(op: OpInfo, dtype: torch.dtype, most: int | None) -> int:
    """Dense samples whose first tensor is made sparse: what has no sparse kernel must raise the CPU's error."""
    compared = 0
    for sample in some_samples(op, dtype, most):
        given = arguments(sample)
        if not isinstance(given[0], torch.Tensor) or given[0].layout is not torch.strided or given[0].dim() == 0:
            continue
        for layout in (torch.sparse_coo, torch.sparse_csr):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    sparse = given[0].to_sparse(layout=layout)
            except (RuntimeError, IndexError, ValueError):  # no sparse form: 1-d, or batches with unequal numbers of elements
                continue
            on_cpu, on_device = place((sparse, *given[1:]), CPU), place((sparse, *given[1:]), DEVICE)
            compare_calls(
                lambda args=on_device: call(op.op, args), lambda args=on_cpu: call(op.op, args), values=op.name not in UNINITIALISED
            )
            compared += 1
    if not compared:
        raise NothingToCompare("no sample has a first tensor that can be made sparse")
    return compared


@source("sparse")
def cases():
    """Sparse samples give the CPU's results."""
    return operator_cases("sparse", checker(lambda op, given: call(op.op, given), False), where=lambda op: bool(layouts_with_samples(op)))


@source("sparse_backward")
def backward_cases():
    """Sparse samples give the CPU's gradients."""
    return operator_cases(
        "sparse_backward", checker(differentiate, True), dtypes=backward_dtypes, where=lambda op: bool(layouts_with_samples(op))
    )


@source("sparse_any")
def any_cases():
    """Any operator gives the CPU's result or error for a sparse first argument."""
    return operator_cases("sparse_any", check_any_operator, dtypes=lambda op: forward_dtypes(op) & {torch.float32}, full_samples=4)
