"""Graphs that reach TorchInductor with tensors on `neuron` run as our programs.

`torch.compile` without a backend, `backend="inductor"` and Inductor's modes and options all end in Inductor, which has no code generator
for this device. Its registration takes a pass that sees the whole graph after Inductor's own ones. Ours compiles the graph and leaves one
call of the program in its place, so that Inductor has nothing left to generate: no C++ compiler runs.

Inductor finds this module through `torch.neuron.Scheduling` when it registers the backends of all devices, on its first compilation.
Inductor has decomposed the operators by then, so `backend="neuron"` gives the faster program, and says so in a warning.
"""

import itertools
import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.scheduler import BaseScheduling
from torch._ops import OpOverload
from torch.utils._python_dispatch import _disable_current_modes

from torch_neuronx import _C
from torch_neuronx.neuron_dynamo_backend import device_interface, shapes
from torch_neuronx.neuron_dynamo_backend.settings import Settings, warn_once

_NO_GENERATOR = (
    "Inductor cannot generate code for the device 'neuron': a graph uses it inside, but neither its inputs nor its results are there. "
    'Use torch.compile(..., backend="neuron"), or torch.compiler.set_default_backend("neuron") for calls that name no backend.'
)


class Scheduling(BaseScheduling):
    """Inductor's generator of kernels for the device: there is none, since whole graphs are replaced before."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(_NO_GENERATOR)

    group_fn = can_fuse_vertical = can_fuse_horizontal = codegen_node = codegen_template = codegen_sync = _refuse

    def flush(self) -> None:
        """Nothing is pending."""


class _Wrapper(PythonWrapperCodegen):
    """Inductor's generator of the code around kernels. It mentions programs of this process, so its results are not cached."""

    supports_caching = False


class _Program:
    """One graph of Inductor, compiled. Takes its tensors in two lists: those that it writes, and the others."""

    def __init__(self, code: Any, inputs: Sequence[Any], written: Sequence[int], read: Sequence[int], results: Sequence[Any]) -> None:
        self._code = code
        self._inputs = inputs  # numbers at their places, None for tensors
        self._positions = (*written, *read)
        self._results = tuple(index for index, value in enumerate(results) if value is not None)
        self._examples = tuple(
            (tuple(value.size()), tuple(value.stride()), value.dtype, value.device) for value in results if value is not None
        )

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        values = list(self._inputs)
        for position, tensor in zip(self._positions, tensors, strict=True):
            values[position] = tensor
        results = self._code(values)
        return [results[index] for index in self._results]

    def examples(self) -> list[torch.Tensor]:
        return [torch.empty_strided(size, stride, dtype=dtype, device=device) for size, stride, dtype, device in self._examples]


# Inductor keeps the modules that it generates for the life of the process, so their programs live as long.
_programs: dict[int, _Program] = {}
_numbers = itertools.count()

_library = torch.library.Library("softneuron", "FRAGMENT")
# Results may be views of what is read.
_library.define("run_program(Tensor(a!)[] written, Tensor(b)[] read, int program) -> Tensor(b)[]")


@torch.library.impl(_library, "run_program", "CompositeExplicitAutograd")
def _run_program(written: list[torch.Tensor], read: list[torch.Tensor], program: int) -> list[torch.Tensor]:
    return _programs[program].run([*written, *read])


@torch.library.impl(_library, "run_program", "Functionalize")
def _refuse_functionalization(written: list[torch.Tensor], read: list[torch.Tensor], program: int) -> list[torch.Tensor]:
    # Inductor takes operators that write and return only if they have a kernel here. Graphs are functional before the pass runs.
    raise NotImplementedError("softneuron::run_program stands in graphs of Inductor only")


def _fake_results(written: list[torch.Tensor], read: list[torch.Tensor], program: int) -> list[torch.Tensor]:
    return _programs[program].examples()


torch.library.register_fake("softneuron::run_program", _fake_results, lib=_library)


def _undo_prims(graph: torch.fx.Graph) -> None:
    """Put operators with kernels in the place of Inductor's decompositions that only have a Python implementation."""
    for node in list(graph.find_nodes(op="call_function", target=torch.ops.prims.convert_element_type.default)):
        source, dtype = node.args
        node.target = torch.ops.aten._to_copy.default
        node.args, node.kwargs = (source,), {"dtype": dtype}


def _written_placeholders(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    written = set()
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        for index, parameter in enumerate(node.target._schema.arguments):
            if parameter.alias_info is None or not parameter.alias_info.is_write:
                continue
            target = node.args[index] if index < len(node.args) else node.kwargs.get(parameter.name)
            for item in target if isinstance(target, (list, tuple)) else (target,):
                source = item
                while isinstance(source, torch.fx.Node) and source.op == "call_function" and source.args:
                    source = source.args[0]  # through views
                if isinstance(source, torch.fx.Node) and source.op == "placeholder":
                    written.add(source)
    return written


def _example_of(node: Any, kind: Any) -> Any:
    """Give the example of a result that the graph computes, if it is of that kind, else None."""
    if not isinstance(node, torch.fx.Node) or node.op == "placeholder":
        return None
    return node.meta["val"] if isinstance(node.meta.get("val"), kind) else None


class _ReplaceGraph(CustomGraphModulePass):
    """Compiles the graph and leaves one call of the program."""

    def uuid(self) -> Any:
        """Name the compiler; part of the keys of all of Inductor's caches, so nothing in it changes from process to process."""
        return _C.build_identity()

    def __call__(self, gm: torch.fx.GraphModule) -> None:
        """Replace the nodes of `gm`. DynamicShapeError if shapes were to be dynamic."""
        warn_once(
            "inductor",
            "a graph on 'neuron' was compiled through Inductor, which takes operators apart first. backend=\"neuron\" gives faster "
            'programs; torch.compiler.set_default_backend("neuron") makes it the default.',
        )
        graph = gm.graph
        placeholders = list(graph.find_nodes(op="placeholder"))
        examples = [node.meta.get("val") for node in placeholders]
        shapes.reject_dynamic(examples)
        shapes.specialise(examples)
        _undo_prims(graph)
        # Not above: the backend changes a setting of PyTorch when it is imported, and this module is imported for other devices too.
        from torch_neuronx.neuron_dynamo_backend import backend

        with _disable_current_modes():
            code = backend.compile_graph(gm, examples, Settings(), "inductor")
        (output,) = graph.find_nodes(op="output")
        outputs = list(output.args[0])
        # What the caller gets as it is: inputs, numbers, nothing. The rest comes from the program.
        computed = [_example_of(node, torch.Tensor) for node in outputs]
        tensors = [index for index, example in enumerate(examples) if isinstance(example, torch.Tensor)]
        written_nodes = _written_placeholders(graph)
        written = [index for index in tensors if placeholders[index] in written_nodes]
        read = [index for index in tensors if placeholders[index] not in written_nodes]
        numbers = [None if isinstance(example, torch.Tensor) else shapes.concrete(example) for example in examples]
        number = next(_numbers)
        _programs[number] = _Program(code, numbers, written, read, computed)
        with graph.inserting_before(output):
            arguments = ([placeholders[index] for index in written], [placeholders[index] for index in read], number)
            call = graph.call_function(torch.ops.softneuron.run_program.default, arguments)
            call.meta["val"] = [value for value in computed if value is not None]
            results = []
            for index, node in enumerate(outputs):
                if computed[index] is None:
                    number_found = _example_of(node, (int, float, torch.SymInt, torch.SymFloat))
                    results.append(node if number_found is None else shapes.concrete(number_found))
                    continue
                item = graph.call_function(operator.getitem, (call, sum(value is not None for value in computed[:index])))
                item.meta["val"] = computed[index]
                results.append(item)
        output.args = (tuple(results),)
        for node in reversed(list(graph.nodes)):
            if node.op in ("call_function", "get_attr") and node is not call and not node.users:
                graph.erase_node(node)
        graph.lint()
        gm.recompile()


device_interface.register()
register_backend_for_device("neuron", Scheduling, _Wrapper, device_custom_pass=_ReplaceGraph())
register_device_op_overrides("neuron", CpuDeviceOpOverrides())
