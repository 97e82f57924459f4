"""What a compiled graph is to AOTAutograd: a callable that can be pickled into PyTorch's own cache of AOTAutograd results.

`torch._functorch` keeps what AOTAutograd found out about a graph (aliasing, mutations, the joint graph's split) together with the compiled
forward and backward, if these are `OutputCode`. A later process that traces the same graph with Dynamo then skips AOTAutograd altogether.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._inductor.output_code import OutputCode
from torch.utils._python_dispatch import _disable_current_modes

from torch_neuronx import _C
from torch_neuronx.neuron_dynamo_backend.metrics import GraphRecord, add_record
from torch_neuronx.neuron_dynamo_backend.settings import log_cache_reports, log_graph


def _pack(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Give a constant as plain data. `torch.load` would make a fake tensor of it, while AOTAutograd is at work."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return data, tensor.dtype, tuple(tensor.size()), tensor.stride(), str(tensor.device)


def _unpack(data: bytes, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], device: str) -> torch.Tensor:
    tensor = torch.empty_strided(size, stride, dtype=dtype)
    if data:
        tensor.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).view(size))
    return tensor.to(device)


class NeuronOutputCode(OutputCode):
    """A compiled graph. Takes one list of inputs and empties it."""

    def __init__(self, graph: _C.CompiledGraph, record: GraphRecord) -> None:
        super().__init__()
        self._boxed_call = True  # in the instance's dictionary, which wrappers copy
        self._graph: _C.CompiledGraph | None = graph
        self._record = record
        self._text = ""
        self._constants: list[tuple[Any, ...]] = []

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Run the program."""
        return self._graph(inputs)  # type: ignore[misc, arg-type]

    def prepare_for_serialization(self) -> None:
        """Turn this copy into text and bytes. BypassAOTAutogradCache for a graph that calls back into Python."""
        assert self._graph is not None
        stored = self._graph.storable()
        if stored is None:
            raise BypassAOTAutogradCache(f"graph {self._record.graph_name} calls Python functions")
        self._text, constants = stored
        with _disable_current_modes():
            self._constants = [_pack(tensor) for tensor in constants]
        self._graph = None

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Make a program again of what another process (or this one, earlier) stored."""
        with _disable_current_modes():
            tensors = [_unpack(*packed) for packed in self._constants]
            self._graph = _C.load_program(self._record.graph_name, self._record.graph_id, self._text, tensors)
        self._record = self._record.loaded(self._graph.compile_us)
        add_record(self._record)
        log_graph(self._record.graph_name, self._record.graph_node_count, self._graph)
        log_cache_reports()

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing of Triton's is in a program."""


class EagerOutputCode(OutputCode):
    """A graph that did not compile and runs eagerly (`fallback_execution`). Never stored."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self._boxed_call = True  # in the instance's dictionary, which wrappers copy
        self._function = function

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Run the graph."""
        return self._function(inputs)  # type: ignore[arg-type]

    def prepare_for_serialization(self) -> None:
        """Refuse: the next process may be able to compile it."""
        raise BypassAOTAutogradCache("the graph did not compile and runs eagerly")

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Never called: such a graph is not stored."""
        raise NotImplementedError

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing of Triton's is in a graph."""
