"""Metrics and explanations of `torch.compile(backend="neuron")`. The compiler is imported when they are asked for, not before."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_neuronx.neuron_dynamo_backend.explanation import Explanation


def get_dynamo_metrics() -> list[dict[str, Any]]:
    """Synchronise, then return one record per compiled graph: names, node count, and times of the compile phases in microseconds."""
    from torch_neuronx.neuron_dynamo_backend import metrics

    records: list[dict[str, Any]] = metrics.get_dynamo_metrics()
    return records


def reset_dynamo_metrics() -> None:
    """Forget the records of :func:`get_dynamo_metrics`."""
    from torch_neuronx.neuron_dynamo_backend import metrics

    metrics.reset_dynamo_metrics()


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Explanation":
    """Compile a function or module for `neuron`, run it once with the arguments, and tell what happened; print the result to read it.

    The explanation lists graphs (instructions, kernels, ATen calls and why, bytes, FLOPs, peak memory), graph breaks and recompilations
    with the user's lines and the reasons. Nothing comes from a cache on disk; functions that are compiled already stay so. An exception
    of the run ends up in `error`, with what was found until then.
    """
    from torch_neuronx.neuron_dynamo_backend import explanation

    return explanation.explain(function, *args, **kwargs)
