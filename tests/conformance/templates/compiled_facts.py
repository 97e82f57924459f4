"""What one call of a sample did, compiled or eager, and in what two such calls differ: results, errors, sharing, writes to the inputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch._dynamo.exc import TorchRuntimeError
from torch.testing._comparison import default_tolerances
from torch.utils._pytree import tree_flatten, tree_map_only

from ..compare import as_near, same_strides
from ..samples import tensors_of
from .aliasing import sharing
from .determinism import bits

OTHER_VALUES = ": other values"


@dataclasses.dataclass
class Seen:
    """A tensor as it was when the call had ended: later questions cannot change the answers of autograd."""

    data: torch.Tensor
    requires_grad: bool
    is_leaf: bool


def seen(t: torch.Tensor) -> Seen:
    """Look at a tensor."""
    return Seen(t.detach(), t.requires_grad, t.is_leaf)


@dataclasses.dataclass
class Facts:
    """What one call did with one sample. `results` is the tree returned, `gradients` what a backward gave afterwards."""

    error: Exception | None = None
    results: Any = None
    gradients: Any = None
    inputs: Any = None
    written: list[bool] = dataclasses.field(default_factory=list)
    shared: list[Any] = dataclasses.field(default_factory=list)


def facts_of(results: Any, given: Any, versions: list[int], gradients: list[torch.Tensor | None]) -> Facts:
    """Look at a call after it succeeded. `versions` are the inputs' version counters from before."""
    returned, inputs = strided(results), strided(given)
    written = [t._version != version for t, version in zip(inputs, versions, strict=True)]
    looked_at = tree_map_only(torch.Tensor, seen, (results, gradients, inputs))
    # `versions_counted` says more than equal counters do.
    with_inputs = [[fact[:3] for fact in row] for row in sharing(returned, inputs)]
    shared = [with_inputs, shared_among(returned), versions_counted([*returned, *inputs], len(returned))]
    return Facts(None, *looked_at, written, shared)


def shared_among(results: list[torch.Tensor]) -> list[Any]:
    """For each pair of results: whether they are one tensor, or lie in one storage."""
    pointers = [t.untyped_storage().data_ptr() if t.numel() else None for t in results]
    return [
        [(one is other, here is not None and here == there) for other, there in zip(results, pointers, strict=True)]
        for one, here in zip(results, pointers, strict=True)
    ]


def versions_counted(tensors: list[torch.Tensor], count: int) -> list[Any]:
    """For each of the first `count` tensors: which tensors count up when it does, as it would if something wrote to it."""
    found = []
    for t in tensors[:count]:
        before = [other._version for other in tensors]
        torch.autograd.graph.increment_version(t)
        found.append([other._version != version for other, version in zip(tensors, before, strict=True)])
    return found


def strided(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree that have a storage of their own to talk about."""
    return [t for t in tensors_of(tree) if t.layout is torch.strided and not t.is_nested and not t.is_quantized]


def name_of(error: Exception | None) -> str:
    """The type of an error, with that of the one inside that the compiler wrapped."""
    if error is None:
        return "nothing"
    inner = getattr(error, "inner_exception", None) or error.__cause__
    return type(error).__name__ + (f"({type(inner).__name__})" if inner is not None and type(inner) is not type(error) else "")


def same_error(compiled: Exception | None, eager: Exception | None) -> bool:
    """Both fail, with one type of error; an error that Dynamo meets while it traces with fake tensors comes as its TorchRuntimeError."""
    if compiled is None or eager is None:
        return compiled is eager
    return type(compiled) in (type(eager), TorchRuntimeError)


def differences(one: Facts, other: Facts, *, values: bool = True, computes: torch.dtype | None = None) -> list[str]:
    """In what `one` differs from `other`: short texts that name no device and no number, so that those of two devices can be compared.

    `computes`: the dtype in which results are computed, if they may be of a wider one.
    """
    if one.error is not None or other.error is not None:
        return [] if same_error(one.error, other.error) else [f"raises {name_of(one.error)} instead of {name_of(other.error)}"]
    found = _tree_differences("result", one.results, other.results, values, computes)
    found += _tree_differences("gradient", one.gradients, other.gradients, values, computes)
    found += _tree_differences("input afterwards", one.inputs, other.inputs, values, computes)
    if one.written != other.written:
        found.append(f"inputs written {one.written} instead of {other.written}")
    if one.shared != other.shared:
        found.append(f"sharing {one.shared} instead of {other.shared}")
    return found


def _tree_differences(what: str, one: Any, other: Any, values: bool, computes: torch.dtype | None) -> list[str]:
    left, left_structure = tree_flatten(one)
    right, right_structure = tree_flatten(other)
    if left_structure != right_structure:
        return [f"{what}: structure {left_structure} instead of {right_structure}"]
    found = []
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        if type(a) is not type(b):
            found.append(f"{what} {index}: {type(a).__name__} instead of {type(b).__name__}")
        elif isinstance(b, Seen):
            found += _tensor_differences(f"{what} {index}", a, b, values, computes)
        elif values and a != b and not (a != a and b != b):
            found.append(f"{what} {index}: another value")
    return found


def _tensor_differences(what: str, one: Seen, other: Seen, values: bool, computes: torch.dtype | None) -> list[str]:
    left, right = one.data, other.data
    found = [f"{what}: {n} {getattr(one, n)}" for n in ("requires_grad", "is_leaf") if getattr(one, n) != getattr(other, n)]
    for name in ("dtype", "shape", "layout"):
        if getattr(left, name) != getattr(right, name):
            found.append(f"{what}: {name} {getattr(left, name)} instead of {getattr(right, name)}")
    if left.device != right.device:
        found.append(f"{what}: on another device")
    if found:
        return found
    if strided(right):
        if not same_strides(left, right):
            found.append(f"{what}: strides {left.stride()} instead of {right.stride()} of shape {tuple(right.shape)}")
        if left.is_conj() != right.is_conj() or left.is_neg() != right.is_neg():
            found.append(f"{what}: conjugate or negative bit")
    if values and not same_values(left, right, computes):
        found.append(f"{what}{OTHER_VALUES}")
    return found


def only_values(found: list[str]) -> bool:
    """Whether tensors' elements are all that differs."""
    return all(text.endswith(OTHER_VALUES) for text in found)


def as_near_as(one: Facts, other: Facts, exact: Facts) -> bool:
    """Whether the tensors of `one` are as near to those of `exact` as the ones of `other` (compare.as_near)."""
    trees = [
        [leaf.data for leaf in tree_flatten((facts.results, facts.gradients, facts.inputs))[0] if isinstance(leaf, Seen)]
        for facts in (one, other, exact)
    ]
    return exact.error is None and as_near(*trees)


def same_values(one: torch.Tensor, other: torch.Tensor, computes: torch.dtype | None = None) -> bool:
    """Equal within the tolerance that `torch.testing` has for the dtype: compilation may decompose an operator in another way."""
    left, right = one.cpu(), other.cpu()
    if strided([left, right]) and torch.equal(bits(left), bits(right)):
        return True
    rtol, atol = default_tolerances(left, right, *([] if computes is None else [computes]))
    try:
        torch.testing.assert_close(left, right, equal_nan=True, rtol=rtol, atol=atol)
    except AssertionError:
        return False
    return True
