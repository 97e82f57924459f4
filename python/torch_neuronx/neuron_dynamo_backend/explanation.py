"""`torch_neuronx.explain`: what became of a function when it was compiled, and why.

While someone collects (`explain` runs, or `TORCH_NEURONX_EXPLAIN=1`), the backend notes each graph, graph break and recompilation here.
"""

import atexit
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from torch_neuronx import _C
from torch_neuronx.neuron_dynamo_backend.metrics import GraphRecord
from torch_neuronx.neuron_dynamo_backend.settings import environment_flag

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_TIMES = 12  # kinds of instructions in a report
_LEFT = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "neuron::matmul": 0}
_COLLECTIVES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d", "c10d_functional", "symm_mem"})


@dataclass(frozen=True)
class CallReport:
    """Instructions of one kind that call an operator of PyTorch (or Python) instead of a kernel of ours."""

    opcode: str
    count: int
    reason: str


@dataclass(frozen=True)
class TimeReport:
    """Instructions with the same opcode and the same types, over all runs that were explained."""

    opcode: str
    types: str  # of operands and results
    count: int  # in one run
    seconds: float  # of one run, together
    bytes: int  # of one run: operands and results
    flops: int  # of one run: matrix products


@dataclass(frozen=True)
class GraphReport:
    """One compiled graph. Bytes and FLOPs are of one run, from the static shapes."""

    name: str
    graph_id: str
    place: str  # the user's line that the graph begins with
    nodes: int
    instructions: int
    views: int  # instructions that touch no data
    fused: tuple[tuple[str, int], ...]  # kernels and fused regions of ours: opcode, how many
    calls: tuple[CallReport, ...]
    flops: int  # of matrix products, convolutions and attention
    bytes: int  # operands and results of all instructions, each counted once per instruction
    input_bytes: int
    constant_bytes: int
    peak_bytes: int  # the most that instructions hold at once besides inputs and constants
    peak_instruction: str
    cached: bool
    graph: _C.CompiledGraph = field(repr=False, compare=False)

    def times(self) -> list[TimeReport]:
        """Tell what the runs spent their time on, the most first; empty if it did not run while it was explained."""
        runs, nanoseconds = self.graph.step_times()
        if runs == 0:
            return []
        kinds: dict[tuple[str, str], TimeReport] = {}
        for one, spent in zip(self.graph.instructions(), nanoseconds, strict=True):
            types = f"({_types(one['operands'])}) -> {_types(one['results'])}"
            before = kinds.get((one["opcode"], types), TimeReport(one["opcode"], types, 0, 0.0, 0, 0))
            touched = 0 if one["views"] and not one["writes"] else sum(size for _, _, size in (*one["operands"], *one["results"]))
            kinds[one["opcode"], types] = TimeReport(
                one["opcode"],
                types,
                before.count + 1,
                before.seconds + spent / runs / 1e9,
                before.bytes + touched,
                before.flops + _product_flops(one),
            )
        return sorted(kinds.values(), key=lambda kind: -kind.seconds)


@dataclass(frozen=True)
class Break:
    """A place where Dynamo ended a graph."""

    place: str
    reason: str


@dataclass(frozen=True)
class Recompilation:
    """A function that was compiled again."""

    place: str
    reason: str


@dataclass
class Explanation:
    """What `torch_neuronx.explain` found. `str()` gives a report to read."""

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    recompilations: list[Recompilation] = field(default_factory=list)
    error: str | None = None  # of the run that was explained

    def __str__(self) -> str:
        """Give the report."""
        lines = [
            f"{_number(len(self.graphs), 'graph')}, {_number(len(self.breaks), 'graph break')}, "
            f"{_number(len(self.recompilations), 'recompilation')}"
        ]
        if self.error is not None:
            lines.append(f"the run ended with {self.error}")
        for graph in self.graphs:
            lines += ["", *_describe(graph)]
        for title, events in (("Graph breaks", self.breaks), ("Recompilations", self.recompilations)):
            if events:
                lines += ["", f"{title}:"]
                for event in events:
                    lines += [f"  {event.place}", *(f"    {line}" for line in event.reason.splitlines())]
        return "\n".join(lines)


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _size(count: int) -> str:
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def _flops(count: int) -> str:
    value, unit = float(count), ""
    for larger in ("K", "M", "G", "T", "P"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.4g} {unit}FLOP"


def _types(tensors: list[tuple[str, list[int], int]]) -> str:
    return ", ".join(f"{scalar}[{','.join(map(str, sizes))}]" for scalar, sizes, _ in tensors)


def _product_flops(instruction: dict[str, Any]) -> int:
    """Of matrix products, whose left matrix is the operand `_LEFT` says."""
    left = _LEFT.get(instruction["opcode"])
    if left is None:
        return 0
    _, sizes, _ = instruction["operands"][left]
    return 2 * int(sizes[-1]) * sum(math.prod(result) for _, result, _ in instruction["results"])


def _describe_times(times: list[TimeReport]) -> list[str]:
    total = sum(kind.seconds for kind in times)
    lines = [f"  time        {1e3 * total:.3f} ms for a run of all instructions"] if times else []
    for kind in times[:_MOST_TIMES]:
        rates = f"{kind.bytes / kind.seconds / 1e9:.1f} GB/s" if kind.seconds > 0 else ""
        if kind.flops and kind.seconds > 0:
            rates += f", {_flops(round(kind.flops / kind.seconds))}/s"
        lines.append(f"    {1e3 * kind.seconds:9.3f} ms, {kind.seconds / total:5.1%}, {kind.count:4} x {kind.opcode}{kind.types}: {rates}")
    return lines


def _describe(graph: GraphReport) -> list[str]:
    work = graph.instructions - graph.views
    lines = [
        f"Graph {graph.name}{' (from a cache)' if graph.cached else ''}",
        f"  from        {graph.place}",
        f"  program     {_number(graph.nodes, 'node')}, {_number(graph.instructions, 'instruction')}, "
        f"{graph.views:,} of them views without work",
        f"  work        {_flops(graph.flops)} in matrix products, {_size(graph.bytes)} read and written",
        f"  memory      inputs {_size(graph.input_bytes)}, constants {_size(graph.constant_bytes)}, "
        f"peak of the rest {_size(graph.peak_bytes)}" + (f" at {graph.peak_instruction}" if graph.peak_instruction else ""),
    ]
    fused = sum(count for _, count in graph.fused)
    lines.append(f"  kernels     {_number(fused, 'instruction')} of {work:,} with work in kernels of ours")
    lines += [f"    {count:6,} x {opcode}" for opcode, count in graph.fused]
    calls = sum(call.count for call in graph.calls)
    lines.append(f"  ATen calls  {_number(calls, 'instruction')}")
    lines += [f"    {call.count:6,} x {call.opcode}: {call.reason}" for call in graph.calls]
    return lines + _describe_times(graph.times())


class _Collector:
    def __init__(self) -> None:
        self.explanation = Explanation()
        self.lock = threading.Lock()


_collectors: list[_Collector] = []


def collecting() -> bool:
    """Tell whether somebody wants to know; results of a cache would tell less."""
    return bool(_collectors)


def _operator_of(opcode: str) -> Any:
    namespace, _, rest = opcode.partition("::")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace, None), name, None) if rest else None
    return getattr(packet, overload or "default", None)


def _reason(opcode: str) -> str:
    namespace = opcode.partition("::")[0]
    if namespace == "python":
        return "only Python can run it: a higher-order operator, or a function that the graph calls"
    if namespace in _COLLECTIVES:
        return "it talks to other ranks"
    overload = _operator_of(opcode)
    if overload is not None and torch.Tag.nondeterministic_seeded in overload.tags:
        return "it draws random numbers, in the order of the eager run"
    if namespace not in ("aten", "prims"):
        return "an operator of another library: its own kernel runs"
    return "the compiler has no kernel of its own for it"


def _node_flops(node: torch.fx.Node) -> int:
    target = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload) or "val" not in node.meta:
        return 0
    value = node.meta["val"]
    try:
        args: Any
        kwargs: Any
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda used: used.meta.get("val"))
        if target is torch.ops.aten.linear.default:
            return int(2 * value.numel() * args[0].shape[-1])
        formula = flop_registry.get(target.overloadpacket)
        return int(formula(*args, **kwargs, out_val=value)) if formula is not None else 0
    except Exception:  # a formula of another version, or sizes that have no number: a report must not break a compilation
        return 0


def _place(gm: torch.fx.GraphModule) -> str:
    for node in gm.graph.nodes:
        trace = node.op == "call_function" and node.stack_trace
        if trace:
            lines = [line.strip() for line in str(trace).strip().splitlines()]
            return " ".join(lines[:2])
    return "unknown"


def _report(record: GraphRecord, gm: torch.fx.GraphModule, graph: _C.CompiledGraph) -> GraphReport:
    instructions = graph.instructions()
    working = [one for one in instructions if not one["views"] or one["writes"]]
    fused: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for one in working:
        is_call = one["opcode"].startswith("python::") or _operator_of(one["opcode"]) is not None
        (calls if is_call else fused)[one["opcode"]] += 1
    memory = graph.memory_estimate()
    peak = memory["peak_instruction"]
    return GraphReport(
        name=record.graph_name,
        graph_id=record.graph_id,
        place=_place(gm),
        nodes=record.graph_node_count,
        instructions=len(instructions),
        views=len(instructions) - len(working),
        fused=tuple(fused.most_common()),
        calls=tuple(CallReport(opcode, count, _reason(opcode)) for opcode, count in calls.most_common()),
        flops=sum(_node_flops(node) for node in gm.graph.nodes),
        bytes=sum(size for one in working for _, _, size in (*one["operands"], *one["results"])),
        input_bytes=memory["input_bytes"],
        constant_bytes=memory["constant_bytes"],
        peak_bytes=memory["peak_bytes"],
        peak_instruction=instructions[peak]["text"] if peak >= 0 else "",
        cached=graph.was_cached,
        graph=graph,
    )


def note_graph(record: GraphRecord, gm: torch.fx.GraphModule, graph: _C.CompiledGraph) -> None:
    """Take down a compiled graph."""
    if _collectors:
        report = _report(record, gm, graph)
        for collector in _collectors:
            with collector.lock:
                collector.explanation.graphs.append(report)


def note_break(gm: torch.fx.GraphModule) -> None:
    """Take down why Dynamo ended this graph, if it was not the function's end."""
    ending: Any = getattr(gm, "compile_subgraph_reason", None)
    if not _collectors or ending is None or not getattr(ending, "graph_break", False):
        return
    frames = list(ending.user_stack or ())
    place = f'File "{frames[-1].filename}", line {frames[-1].lineno}, in {frames[-1].name}' if frames else "unknown"
    if frames and frames[-1].line:
        place += f": {frames[-1].line.strip()}"
    for collector in _collectors:
        with collector.lock:
            collector.explanation.breaks.append(Break(place, str(ending.reason).strip()))


def note_recompilation(place: str, reason: str) -> None:
    """Take down that a function is compiled again."""
    for collector in _collectors:
        with collector.lock:
            collector.explanation.recompilations.append(Recompilation(place, reason))


@contextmanager
def collect() -> "Iterator[Explanation]":
    """Collect what is compiled inside the block, in all threads."""
    collector = _Collector()
    _collectors.append(collector)
    _C.ask_for_step_times(True)
    try:
        yield collector.explanation
    finally:
        _C.ask_for_step_times(False)
        _collectors.remove(collector)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Do the work of `torch_neuronx.explain`."""
    from torch._dynamo.eval_frame import innermost_fn

    if isinstance(function, torch._dynamo.OptimizedModule):
        function = function._orig_mod
    elif not isinstance(function, torch.nn.Module):
        function = innermost_fn(function)

    # Dynamo takes what it compiled before only for the same backend, and this one is new.
    def anew(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        from torch_neuronx.neuron_dynamo_backend.backend import neuron

        return neuron(gm, example_inputs)

    unpublished: dict[str, Any] = {"isolate_recompiles": True}  # how often the function was compiled before does not matter
    compiled = torch.compile(function, backend=anew, **unpublished)
    with collect() as explanation, torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
        try:
            compiled(*args, **kwargs)
        except Exception as error:
            explanation.error = f"{type(error).__name__}: {error}"
    return explanation


def start_for_process() -> None:
    """With `TORCH_NEURONX_EXPLAIN=1`, collect for the rest of the process, and print the report when it ends."""
    if not environment_flag("TORCH_NEURONX_EXPLAIN", default=False):
        return
    collector = _Collector()
    _collectors.append(collector)
    _C.ask_for_step_times(True)
    atexit.register(lambda: print(f"torch_neuronx: {collector.explanation}", file=sys.stderr, flush=True))


start_for_process()
