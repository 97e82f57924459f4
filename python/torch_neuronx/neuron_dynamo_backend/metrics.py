"""Records of what was compiled: `get_dynamo_metrics()`, and a table written at exit when the environment asks for it."""

import atexit
import csv
import os
import threading
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class GraphRecord:
    """One compiled graph; times in microseconds, `timestamp` in seconds since the epoch."""

    graph_id: str
    graph_name: str
    model_name: str
    has_collectives: bool
    graph_node_count: int
    timestamp: float
    torch_neuronx_fx_passes_us: int
    torch_neuronx_lower_us: int
    torch_neuronx_compile_us: int

    def loaded(self, compile_us: int) -> "GraphRecord":
        """Give the record of the same graph when it comes from a cache: neither read nor lowered."""
        return replace(
            self, timestamp=time.time(), torch_neuronx_fx_passes_us=0, torch_neuronx_lower_us=0, torch_neuronx_compile_us=compile_us
        )


_lock = threading.Lock()
_records: list[GraphRecord] = []


def add_record(record: GraphRecord) -> None:
    """Append a record and count it among Dynamo's counters."""
    from torch._dynamo.utils import counters

    with _lock:
        _records.append(record)
        counters["neuron"]["compiled_graphs"] += 1
        if record.has_collectives:
            counters["neuron"]["graphs_with_collectives"] += 1


def get_dynamo_metrics() -> list[dict[str, Any]]:
    """Synchronise the device, then return one dictionary per compiled graph, oldest first."""
    from torch_neuronx import neuron

    if neuron.is_initialized():
        neuron.synchronize()
    with _lock:
        return [asdict(record) for record in _records]


def reset_dynamo_metrics() -> None:
    """Forget the records. Dynamo's counters are Dynamo's own (`torch._dynamo.utils.counters.clear()`)."""
    with _lock:
        _records.clear()


def cache_statistics() -> dict[str, int]:
    """Counters of the caches of programs: InMemoryHits, InMemoryMisses, PersistentHits, PersistentMisses, Evictions, TotalCompilations."""
    from torch_neuronx import _C

    return _C.compile_cache_counters()


def _enabled_tables() -> set[str]:
    return {name.strip() for name in os.environ.get("TORCH_NEURONX_ENABLED_METRIC_TABLES", "").split(",") if name.strip()}


def write_tables() -> Path | None:
    """Write `metric_table_graph_stats_rank<r>.csv` into TORCH_NEURONX_METRICS_DIR if that table is enabled; returns the path written."""
    if "graph_stats" not in _enabled_tables():
        return None
    directory = Path(os.environ.get("TORCH_NEURONX_METRICS_DIR", "/tmp"))
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"metric_table_graph_stats_rank{os.environ.get('RANK', '0')}.csv"
    with _lock, path.open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=[field.name for field in fields(GraphRecord)])
        table.writeheader()
        table.writerows(asdict(record) for record in _records)
    return path


def _write_tables_at_exit() -> None:
    try:
        write_tables()
    except OSError as error:
        print(f"torch_neuronx: the metric table was not written: {error}", flush=True)


atexit.register(_write_tables_at_exit)
