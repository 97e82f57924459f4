"""Metrics of `torch.compile(backend="neuron")`. The compiler is imported when they are asked for, not before."""

from typing import Any


def get_dynamo_metrics() -> list[dict[str, Any]]:
    """Synchronise, then return one record per compiled graph: names, node count, and times of the compile phases in microseconds."""
    from torch_neuronx.neuron_dynamo_backend import metrics

    records: list[dict[str, Any]] = metrics.get_dynamo_metrics()
    return records


def reset_dynamo_metrics() -> None:
    """Forget the records of :func:`get_dynamo_metrics`."""
    from torch_neuronx.neuron_dynamo_backend import metrics

    metrics.reset_dynamo_metrics()
