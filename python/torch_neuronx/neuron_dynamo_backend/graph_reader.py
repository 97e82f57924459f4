"""Hands a graph of AOTAutograd over to C++, node by node, once. Nothing here runs when the compiled graph does."""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload

from torch_neuronx._C import ProgramBuilder, Value
from torch_neuronx.neuron_dynamo_backend import random_state
from torch_neuronx.neuron_dynamo_backend.shapes import concrete

_COLLECTIVE_NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d", "c10d_functional", "symm_mem"})
# What C++ can take as a literal.
_LITERALS = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, Value)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def has_collectives(graph: torch.fx.Graph) -> bool:
    """Tell whether the graph talks to other ranks."""
    return any(isinstance(node.target, OpOverload) and node.target.namespace in _COLLECTIVE_NAMESPACES for node in graph.nodes)


def _type_of(value: Any) -> Any:
    """Describe a node's example value as `ProgramBuilder` takes it: (dtype, sizes, strides, device), or the name of a kind."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return "object"
        return value.dtype, [concrete(size) for size in value.size()], [concrete(stride) for stride in value.stride()], value.device
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    if isinstance(value, (int, torch.SymInt)):
        return "int"
    if isinstance(value, (float, torch.SymFloat)):
        return "float"
    return "object"


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, *_SYMBOLIC))


def _example_of(node: torch.fx.Node) -> Any:
    """Find the example value of a node. The partitioner gives the calls that it inserts none, but their `getitem` users have one each."""
    if "val" in node.meta:
        return node.meta["val"]
    items: dict[int, Any] = {}
    for user in node.users:
        index = user.args[1] if user.target is operator.getitem else None
        if isinstance(index, int):
            items[index] = user.meta.get("val")
    return tuple(items.get(index) for index in range(max(items) + 1)) if items else None


def _python_function(
    target: Callable[..., Any], leaves: list[Any], spec: pytree.TreeSpec, result_spec: pytree.TreeSpec
) -> Callable[[list[Any]], list[Any]]:
    """Make a function of the tensors alone, for steps that only Python can run. It empties its list, so that it keeps nothing alive."""
    positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Value)]

    def call(values: list[Any]) -> list[Any]:
        filled = list(leaves)
        for position, value in zip(positions, values, strict=True):
            filled[position] = value
        values.clear()
        args, kwargs = pytree.tree_unflatten(filled, spec)
        del filled
        results = result_spec.flatten_up_to(target(*args, **kwargs))
        return list(results)

    return call


class GraphReader:
    """Walks one graph. `builder` holds the program afterwards."""

    def __init__(self, module: torch.fx.GraphModule, name: str) -> None:
        self.builder = ProgramBuilder(name)
        self._module = module
        # What a node stands for: a Value, a number, a (nested) tuple of these for several results, or an attribute of the module.
        self._values: dict[torch.fx.Node, Any] = {}

    def read(self) -> ProgramBuilder:
        """Hand over every node. Raises DynamicShapeError for sizes that depend on data."""
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                self._read_placeholder(node)
            elif node.op == "get_attr":
                self._read_attribute(node)
            elif node.op == "call_function":
                self._values[node] = self._read_call(node)
            elif node.op == "output":
                outputs = node.args[0] if isinstance(node.args[0], (list, tuple)) else (node.args[0],)
                self.builder.set_outputs([self._resolve(output) for output in outputs])
            else:
                raise NotImplementedError(f"a graph node of kind {node.op!r} ({node.name})")
        return self.builder

    def _read_placeholder(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        slot = self.builder.add_input(_type_of(value))
        # Numbers are part of the program: a call with another number is another graph.
        self._values[node] = concrete(value) if _is_number(value) else Value(slot)

    def _read_attribute(self, node: torch.fx.Node) -> None:
        attribute: Any = self._module
        for part in str(node.target).split("."):
            attribute = getattr(attribute, part)
        self._values[node] = Value(self.builder.add_constant(attribute)) if isinstance(attribute, torch.Tensor) else attribute

    def _resolve(self, argument: Any) -> Any:
        """Replace the nodes in an argument by what they stand for."""
        if isinstance(argument, torch.fx.Node):
            return self._values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._resolve(item) for item in argument]
        if isinstance(argument, dict):
            return {key: self._resolve(item) for key, item in argument.items()}
        if isinstance(argument, slice):
            return slice(self._resolve(argument.start), self._resolve(argument.stop), self._resolve(argument.step))
        return concrete(argument)

    def _read_call(self, node: torch.fx.Node) -> Any:
        target: Any = node.target
        args, kwargs = self._resolve(node.args), self._resolve(node.kwargs)
        if target is operator.getitem and isinstance(args[0], (list, tuple)):
            return args[0][args[1]]
        example = _example_of(node)
        if _is_number(example):
            return concrete(example)  # arithmetic on sizes, done once and for all
        leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
        if isinstance(target, OpOverload) and all(isinstance(leaf, _LITERALS) for leaf in leaves):
            return self._add_operator(target, tuple(args), kwargs, example)
        return self._add_python_call(random_state.REPLACEMENTS.get(target, target), leaves, spec, example)

    def _add_operator(self, target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], example: Any) -> Any:
        schema = target._schema
        opcode = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        if not schema.returns:
            self.builder.add_call(opcode, args, kwargs, [])
            return None
        several = isinstance(example, (list, tuple))
        results = self.builder.add_call(opcode, args, kwargs, [_type_of(item) for item in (example if several else (example,))])
        values = tuple(Value(result) for result in results)
        return values if several else values[0]

    def _add_python_call(self, target: Any, leaves: list[Any], spec: pytree.TreeSpec, example: Any) -> Any:
        result_leaves, result_spec = pytree.tree_flatten(example)
        name = getattr(target, "__name__", type(target).__name__).replace("<", "").replace(">", "")
        arguments = [leaf.id for leaf in leaves if isinstance(leaf, Value)]
        results = self.builder.add_python_call(
            str(name), _python_function(target, leaves, spec, result_spec), arguments, [_type_of(leaf) for leaf in result_leaves]
        )
        return pytree.tree_unflatten([Value(result) for result in results], result_spec)
