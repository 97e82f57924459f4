"""Says that a function is compiled again, and why. On real Trainium that costs minutes; here users see what would have."""

import torch._guards
from torch._dynamo.utils import counters, get_metrics_context

from torch_neuronx.neuron_dynamo_backend.explanation import note_recompilation
from torch_neuronx.neuron_dynamo_backend.settings import log


def _place_of(gm: torch.fx.GraphModule) -> str:
    """Find the outermost source line of the graph's first call: `File "f.py", line 3, in f`."""
    for node in gm.graph.nodes:
        if node.op.startswith("call_") and node.stack_trace:
            return str(node.stack_trace).strip().splitlines()[0].strip()
    return "a function"


def report_recompilation(gm: torch.fx.GraphModule) -> None:
    """Log a warning and count it, if Dynamo is compiling a function that it compiled before. The reason is the guard that failed."""
    reason = getattr(get_metrics_context(), "_metrics", {}).get("recompile_reason")
    if reason is None:
        return
    counters["neuron"]["recompilations"] += 1
    reason = str(reason).splitlines()[0].split(": ", 1)[-1].strip()
    compile_id = torch._guards.CompileContext.current_compile_id()
    note_recompilation(_place_of(gm), reason)
    log.warning("recompiling %s [%s] because %s", _place_of(gm), compile_id, reason)
