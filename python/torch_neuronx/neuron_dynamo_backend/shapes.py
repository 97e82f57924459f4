"""Static shapes out of Dynamo's symbolic ones.

When the second shape arrives, Dynamo's automatic dynamic shapes make the changed sizes symbolic. Programs are static, so the backend asks
each symbol for its value: Dynamo records that as a guard, replaces the symbol by the number in the whole graph, and calls the backend again
for the next shape. Its own recompilation limit and reasons (`TORCH_LOGS=recompiles`) keep working.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch._dynamo.config
from torch._guards import TracingContext
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from torch_neuronx.neuron_dynamo_backend.settings import DYNAMIC_SHAPES_TEXT, DynamicShapeError


def _marked_dimension(tensor: torch.Tensor) -> int | None:
    """Find the first dimension that the user marked as dynamic (as opposed to one that Dynamo found varying)."""
    tracing = TracingContext.try_get()
    context = tracing.tensor_to_context.get(tensor) if tracing is not None else None
    for dimension, constraint in enumerate(getattr(context, "constraint_sizes", None) or ()):
        if constraint is not None and not constraint.warn_only:
            return dimension
    return None


def reject_dynamic(example_inputs: Sequence[Any]) -> None:
    """Raise DynamicShapeError if the user asked for dynamic shapes: `dynamic=True`, or `mark_dynamic` on an input."""
    if not torch._dynamo.config.assume_static_by_default:
        raise DynamicShapeError(DYNAMIC_SHAPES_TEXT.format(what="torch.compile was called with dynamic=True"))
    for index, example in enumerate(example_inputs):
        dimension = _marked_dimension(example) if isinstance(example, torch.Tensor) else None
        if dimension is not None:
            raise DynamicShapeError(DYNAMIC_SHAPES_TEXT.format(what=f"dimension {dimension} of input {index} was marked as dynamic"))


def _numbers(example: Any) -> Iterable[Any]:
    if isinstance(example, torch.Tensor):
        if example.layout is torch.strided:
            return (*example.size(), *example.stride(), example.storage_offset())
        return tuple(example.size())
    return (example,)


def specialise(example_inputs: Sequence[Any]) -> None:
    """Turn every symbolic size, stride, offset and number among the inputs into its value, guarded. DynamicShapeError if one has none."""
    for index, example in enumerate(example_inputs):
        try:
            for number in _numbers(example):
                if isinstance(number, torch.SymInt):
                    int(number)
                elif isinstance(number, torch.SymFloat):
                    float(number)
                elif isinstance(number, torch.SymBool):
                    bool(number)
        except GuardOnDataDependentSymNode as error:
            raise DynamicShapeError(DYNAMIC_SHAPES_TEXT.format(what=f"the shape of input {index} depends on data")) from error


def concrete(value: Any) -> Any:
    """Give a number of the graph as Python's own int, float or bool. DynamicShapeError if its value is known only at run time."""
    try:
        if isinstance(value, torch.SymInt):
            return int(value)
        if isinstance(value, torch.SymFloat):
            return float(value)
        if isinstance(value, torch.SymBool):
            return bool(value)
    except GuardOnDataDependentSymNode as error:
        raise DynamicShapeError(DYNAMIC_SHAPES_TEXT.format(what=f"the graph needs {value}, which depends on data")) from error
    return value
