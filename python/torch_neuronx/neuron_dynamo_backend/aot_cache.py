"""PyTorch's cache of AOTAutograd results, used for graphs of this backend too: `TORCHINDUCTOR_CACHE_DIR/aotautograd`.

It is on for graphs of some size (for all with `TORCHINDUCTOR_AUTOGRAD_CACHE=1`), unless `TORCH_NEURONX_NEFF_DISABLE_CACHE=1` or PyTorch's
own switches (`TORCHINDUCTOR_AUTOGRAD_CACHE=0`, `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1`) say otherwise, or stages are wanted that only a
real compilation shows (`explain`, dumps).
Its entries are what `torch.compiler.save_cache_artifacts()` returns.
"""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
import torch._inductor.config
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from torch_neuronx import _C, neuron
from torch_neuronx.neuron_dynamo_backend import artifacts, explanation
from torch_neuronx.neuron_dynamo_backend.settings import Settings, environment_flag


class _Key(CustomGraphPass):
    """Carries what our results depend on into the key. PyTorch hashes the `uuid` of custom passes; this one is never run."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Do nothing."""

    def uuid(self) -> Any:
        """Everything that distinguishes a result besides the graph, the inputs and PyTorch's own settings."""
        return ("torch_neuronx", *self._parts)


@functools.cache
def _sources() -> bytes:
    return get_hash_for_files(tuple(str(path) for path in sorted(Path(__file__).parent.glob("*.py"))))


def is_switched_off() -> bool:
    """Tell whether the user wants no compiled program to be read or written."""
    return any(environment_flag(name, default=False) for name in ("TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE"))


# Below this, looking for a result costs more than tracing does: PyTorch imports all of Inductor for the key (about a second, once).
_WORTHWHILE_NODES = 300


def is_wanted(gm: torch.fx.GraphModule) -> bool:
    """Tell whether a graph is to be looked for, and kept."""
    if is_switched_off() or explanation.collecting() or artifacts.folder() is not None:
        return False
    # Someone who names PyTorch's switch wants every graph in the cache.
    return len(gm.graph.nodes) >= _WORTHWHILE_NODES or environment_flag("TORCHINDUCTOR_AUTOGRAD_CACHE", default=False)


@contextlib.contextmanager
def enabled(settings: Settings) -> Iterator[None]:
    """Let AOTAutograd look for its result and store it while a graph is compiled; its compilers must be serializable ones."""
    switches = os.environ.get("SOFTNEURON_FUSE")
    key = _Key(_C.build_identity(), _sources(), neuron.current_device(), settings.model_name, switches)
    # Bundled: the entry holds the programs themselves. The backward must be compiled with the forward, since they are one entry.
    with (
        torch._functorch.config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True),
        torch._inductor.config.patch(post_grad_custom_post_pass=key),
    ):
        yield
