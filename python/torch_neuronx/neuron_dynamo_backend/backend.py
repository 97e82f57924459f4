"""The Dynamo backend `neuron`."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch._functorch.config
import torch._inductor.config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException, exceptions_allowed_to_be_fallback
from torch._functorch._aot_autograd.logging_utils import get_aot_compilation_context
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.output_code import OutputCode
from torch.utils._python_dispatch import _disable_current_modes

from torch_neuronx import neuron as device_module
from torch_neuronx.neuron_dynamo_backend import aot_cache, artifacts, device_interface, explanation, shapes
from torch_neuronx.neuron_dynamo_backend.graph_reader import GraphReader, has_collectives
from torch_neuronx.neuron_dynamo_backend.metrics import GraphRecord, add_record
from torch_neuronx.neuron_dynamo_backend.output_code import EagerOutputCode, NeuronOutputCode
from torch_neuronx.neuron_dynamo_backend.recompiles import report_recompilation
from torch_neuronx.neuron_dynamo_backend.settings import (
    DynamicShapeError,
    Settings,
    environment_flag,
    log,
    log_cache_reports,
    log_graph,
    warn_once,
)

# A model on the device may be called with CPU tensors, which the program copies: while tracing, let the device win where the two meet.
# This is PyTorch's own switch for that; without it Dynamo refuses the mixture before any backend is asked.
if torch._functorch.config.fake_tensor_prefer_device_type is None:
    torch._functorch.config.fake_tensor_prefer_device_type = "neuron"

device_interface.register()

# Failures that steer Dynamo (restart, skip, break the graph) or tell the user what to change; never answered by running eagerly.
_PASSED_ON = (TorchDynamoException, DynamicShapeError, *exceptions_allowed_to_be_fallback)


def neuron(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo, forward and (when it is first needed) backward.

    Args:
        gm: the graph.
        example_inputs: fake tensors and numbers, one per placeholder.
        mode: only "default" means something; others warn and act as default.
        options: `model_name` (str, for names in metrics), `dynamic` (bool, True is refused), `use_tensorizer_backend` (bool, accepted
            without effect), `fallback_execution` (bool: run a graph eagerly if it does not compile, instead of raising; overrides
            `TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION`).
        **kwargs: nothing is known; each name warns once.

    Raises:
        DynamicShapeError: dynamic shapes were asked for, or a shape depends on data.
        RuntimeError: a CPU tensor was passed and `TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1`.
    """
    settings = Settings.from_user(mode, options, kwargs)
    shapes.reject_dynamic(example_inputs)
    shapes.specialise(example_inputs)
    _check_host_inputs(example_inputs)
    report_recompilation(gm)
    explanation.note_break(gm)
    kept = aot_cache.is_wanted(gm)
    compiler = aot_autograd(
        fw_compiler=_compiler(settings, "forward", kept=kept),
        bw_compiler=_compiler(settings, "backward", kept=kept),
        inference_compiler=_compiler(settings, "inference", kept=kept),
        decompositions={},
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    try:
        # Random operators whose results nobody reads must stay in the graph: eager draws their numbers too. AOTAutograd asks this setting.
        with aot_cache.enabled(settings) if kept else nullcontext(), torch._inductor.config.patch(fallback_random=True):
            return compiler(gm, example_inputs)
    except _PASSED_ON:
        raise
    except Exception as error:
        if not settings.fallback_execution:
            raise
        log.warning("a graph did not compile and runs eagerly: %s", error)
        return gm.forward


def _check_host_inputs(example_inputs: Sequence[Any]) -> None:
    if not environment_flag("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", default=False):
        return
    for index, example in enumerate(example_inputs):
        if isinstance(example, torch.Tensor) and example.device.type == "cpu" and example.dim() > 0:
            raise RuntimeError(
                f"Input tensor at index {index} is on cpu device, and TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY=1 forbids copying it. "
                "Move the inputs and the model with .to('neuron')."
            )


def _target_device(example_inputs: Sequence[Any]) -> str:
    """Name the core that graphs of host tensors are moved to; warn once if this is such a graph."""
    if any(
        isinstance(example, torch.Tensor) and example.device.type == "cpu" and example.dim() > 0 for example in example_inputs
    ) and not any(isinstance(example, torch.Tensor) and example.device.type == "neuron" for example in example_inputs):
        warn_once(
            "host graph",
            "all inputs of a graph compiled for 'neuron' are on the CPU: each call copies them to the device and the results back. "
            "Move the model with .to('neuron').",
        )
    return f"neuron:{device_module.current_device()}"


def _compiler(settings: Settings, kind: str, *, kept: bool) -> Any:
    """Give a compiler for AOTAutograd, which looks into its cache only for those that say that their results can be stored."""
    compiler = _GraphCompiler(settings, kind)
    return SerializableAOTDispatchCompiler(OutputCode, compiler) if kept else compiler


class _GraphCompiler:
    """Compiles one graph of AOTAutograd; what AOTAutograd calls `fw_compiler`, `bw_compiler` or `inference_compiler`."""

    def __init__(self, settings: Settings, kind: str) -> None:
        self._settings = settings
        self._kind = kind
        self.__name__ = f"neuron_{kind}"

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> OutputCode:
        """Give a boxed callable: it takes one list of inputs and empties it."""
        # Programs never write into what autograd has saved, so a backward may run twice, also one that was compiled with its forward.
        context = torch._guards.TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            context.fw_metadata.bw_donated_idxs = []
        try:
            with _disable_current_modes():  # constants are real tensors, while AOTAutograd still traces with fake ones
                return compile_graph(gm, example_inputs, self._settings, self._kind)
        except _PASSED_ON:
            raise
        except Exception as error:
            if not self._settings.fallback_execution:
                raise
            log.warning("a %s graph did not compile and runs eagerly: %s", self._kind, error)
            return EagerOutputCode(make_boxed_func(gm.forward))


def compile_graph(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings, kind: str) -> NeuronOutputCode:
    """Compile one graph of ATen operators and record it. Call it outside of fake tensor modes.

    Args:
        gm: the graph; every node has an example in `meta["val"]`.
        example_inputs: one per placeholder.
        settings: whose `model_name` begins the graph's name.
        kind: forward, backward, inference or inductor, for the name.
    """
    graphs, _, number = get_aot_compilation_context()
    aot_id = graphs[0].split("_")[0] if graphs else "0"
    name = f"{settings.model_name}_{aot_id}_{kind}_{number}"
    started = time.perf_counter()
    builder = GraphReader(gm, name).read()
    read_us = int((time.perf_counter() - started) * 1e6)
    stages = artifacts.stages_wanted()
    graph = builder.finish(_target_device(example_inputs), stages)
    record = GraphRecord(
        graph_id=graph.fingerprint,
        graph_name=name,
        model_name=settings.model_name,
        has_collectives=has_collectives(gm.graph),
        graph_node_count=len(gm.graph.nodes),
        timestamp=time.time(),
        torch_neuronx_fx_passes_us=read_us,
        torch_neuronx_lower_us=graph.lower_us,
        torch_neuronx_compile_us=graph.compile_us,
    )
    add_record(record)
    log_graph(name, len(gm.graph.nodes), graph)
    log_cache_reports()
    if stages is not None:
        artifacts.write(name, gm, stages)
    explanation.note_graph(record, gm, graph)
    return NeuronOutputCode(graph, record)
