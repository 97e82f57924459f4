"""`torch.compile(backend="neuron")`: Dynamo's graphs become programs that run in C++.

Dynamo finds :func:`neuron` through the entry point group `torch_dynamo_backends` the first time that a program asks for the backend.
Until then nothing here is imported, so `import torch` does not pay for the compiler. The names below are loaded on first use.

Limits that hold by design:

- Shapes are static. A new shape is compiled anew, counted and logged; `dynamic=True` and `mark_dynamic` are refused.
- A model on `neuron` may be called with CPU tensors: the graph copies them (`TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1` makes that an
  error). After a graph break the code between two graphs runs eagerly, where mixing devices is the usual error.
- A graph whose tensors are all on the CPU is moved to the current core. Its results come back as the CPU tensors that the code after it
  expects, whatever `TORCH_NEURONX_RETAIN_DEVICE_MODE` says. Random numbers drawn in it come from the core's generator.
- Importing the backend sets `torch._functorch.config.fake_tensor_prefer_device_type = "neuron"` (unless it is set already): that is how
  Dynamo traces CPU tensors meeting device tensors. Eager operators still refuse the mixture.

- What reaches Inductor with tensors on the device runs as a program too (inductor.py), after Inductor has taken operators apart.

The logger is `torch_neuronx.compile`: a warning per recompilation with its reason, at level INFO a line per graph, at DEBUG its program.
`torch_neuronx.explain` and `TORCH_NEURONX_EXPLAIN=1` (explanation.py) and `TORCH_NEURONX_DEBUG_DIR` (artifacts.py) show more. Programs
outlive the process in `TORCH_NEURONX_NEFF_CACHE_DIR`, results of AOTAutograd in PyTorch's own cache (aot_cache.py).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_neuronx.neuron_dynamo_backend.backend import neuron
    from torch_neuronx.neuron_dynamo_backend.metrics import cache_statistics, get_dynamo_metrics, reset_dynamo_metrics

__all__ = ["cache_statistics", "get_dynamo_metrics", "neuron", "reset_dynamo_metrics"]

_HOMES = {"neuron": "backend", "cache_statistics": "metrics", "get_dynamo_metrics": "metrics", "reset_dynamo_metrics": "metrics"}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
