"""PyTorch's lists of operators under autocast, in every dtype that autocast takes: dtypes of results and the values of explicit casts.

`tests/python/test_autocast.py` has the lists in bfloat16; here are float16 too, the methods that promote by themselves, and gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch.utils._pytree import tree_map

from ..case import Case, source
from ..samples import CPU, DEVICE, place, seed_all, tensors_of

# Operators of cuDNN exist for CUDA alone.
OTHER_DEVICES = {"cudnn_convolution", "cudnn_convolution_transpose"}
LOWER = (torch.float16, torch.bfloat16)
# List -> where its functions are found.
LISTS: dict[str, Any] = {
    "torch_fp16": torch,
    "torch_fp32": torch,
    "torch_need_autocast_promote": torch,
    "torch_expect_builtin_promote": torch,
    "nn_fp16": torch._C._nn,
    "nn_fp32": torch._C._nn,
    "linalg_fp16": torch._C._linalg,
    "methods_fp16": None,
    "methods_fp32": None,
    "methods_expect_builtin_promote": None,
}


@functools.cache
def lists() -> AutocastTestLists:
    """The lists with arguments on the CPU."""
    seed_all()
    return AutocastTestLists(CPU)


def entries(name: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Operator, arguments and options of one list."""
    for operator, *rest in getattr(lists(), name):
        if operator == "einsum":  # listed with an equation that does not fit its operands
            yield operator, ("ij,jk->ik", *rest[1]), {}
        elif operator not in OTHER_DEVICES and (LISTS[name] is not None or hasattr(torch.Tensor, operator)):
            yield operator, rest[0], next((item for item in rest[1:] if isinstance(item, dict)), {})


def call(name: str, operator: str, arguments: Any, options: dict[str, Any]) -> Any:
    """Call an entry: a function of its module, or else a method."""
    function = getattr(LISTS[name], operator, None) if LISTS[name] is not None else None
    return function(*arguments, **options) if function is not None else getattr(arguments[0], operator)(*arguments[1:], **options)


def cast(tree: Any, dtype: torch.dtype, *, only: torch.dtype | None = None) -> Any:
    """The tree with its floating tensors (those of one dtype) in another dtype."""
    return tree_map(
        lambda leaf: leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and only in (None, leaf.dtype) else leaf,
        tree,
    )


def run_as(name: str, lower: torch.dtype) -> torch.dtype | None:
    """The dtype in which a list computes; None: as the arguments promote."""
    if name.endswith("builtin_promote"):
        return None
    return lower if name.endswith("fp16") else torch.float32


def check(name: str, operator: str, lower: torch.dtype, most: int | None) -> int:
    compared = 0
    for listed, arguments, options in entries(name):
        if listed != operator:
            continue
        given = place(cast(arguments, lower, only=torch.float16), DEVICE)
        computed = run_as(name, lower)
        with torch.autocast("neuron", dtype=lower):
            got = call(name, operator, given, options)
        expected = call(name, operator, given if computed is None else cast(given, computed), options)
        results, references = tensors_of(got), tensors_of(expected)
        if not references:
            assert got == expected
        for one, other in zip(results, references, strict=True):
            assert one.device == DEVICE
            assert one.dtype is other.dtype, f"autocast gives {one.dtype} instead of {other.dtype}"
            assert computed is None or not one.is_floating_point() or one.dtype is computed, f"autocast gives {one.dtype}"
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        compared += 1 + check_gradients(name, operator, given, options, lower)
    return compared


def check_gradients(name: str, operator: str, given: Any, options: dict[str, Any], lower: torch.dtype) -> int:
    """Gradients have the dtype of the argument, whatever the operator computed in."""
    leaves: list[torch.Tensor] = []

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        leaves.append(value.detach().clone().requires_grad_())
        return leaves[-1]

    arguments = tree_map(leaf, given)
    with torch.autocast("neuron", dtype=lower):
        outputs = [t for t in tensors_of(call(name, operator, arguments, options)) if t.requires_grad]
    if not outputs:
        return 0
    gradients = torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs], allow_unused=True)
    for parameter, gradient in zip(leaves, gradients, strict=True):
        assert gradient is None or (gradient.dtype, gradient.shape, gradient.device) == (parameter.dtype, parameter.shape, DEVICE)
    return 1


def check_banned(operator: str, lower: torch.dtype, most: int | None) -> int:
    """What autocast refuses in a lower precision works with autocast off, and says so otherwise."""
    arguments, module = next((entry[1], entry[2]) for entry in lists().banned if entry[0] == operator)
    given = place(arguments, DEVICE)
    with torch.autocast("neuron", dtype=lower, enabled=False):
        getattr(module, operator)(*given)
    try:
        with torch.autocast("neuron", dtype=lower):
            getattr(module, operator)(*given)
    except RuntimeError as error:
        assert "unsafe to autocast" in str(error)
        return 1
    raise AssertionError("autocast accepts an operator that it should refuse")


@source("autocast_lists")
def cases():
    for name in LISTS:
        operators = sorted({operator for operator, _, _ in entries(name)})
        assert operators, f"list {name} is empty"
        for operator in operators:
            for lower in LOWER:
                run = functools.partial(check, name, operator, lower)
                yield Case("autocast_lists", f"{name}.{operator}", lower, run, "autocast", quick=lower is torch.float16)
    for operator, *_ in lists().banned:
        for lower in LOWER:
            run = functools.partial(check_banned, operator, lower)
            yield Case("autocast_lists", f"banned.{operator}", lower, run, "autocast", quick=lower is torch.float16)
