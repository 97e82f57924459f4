"""One function of many samples, eager and through `torch.compile(backend="neuron")`: runs, makes certain that a program ran, compares.

Samples that eager accepts are compiled together, up to `TOGETHER` of them in one graph, because a graph costs 50 ms and a sample in it 5.
A group that breaks the graph, fails or differs is taken apart, and each of its samples judged alone. Where a lone sample differs from
eager, the same sample goes through `backend="aot_eager"` on the CPU: what differs there in the same way is PyTorch's doing, and counted so.
Values may differ where the compiled function, which rounds at other places, is as near to what float64 gives as eager is.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch._dynamo
import torch._functorch.config

from torch_neuronx import _C

from ..case import NothingToCompare
from ..samples import CPU, DEVICE, Placement, arguments, seed_all, wide
from .compiled_facts import Facts, as_near_as, differences, facts_of, only_values, strided

TOGETHER = 16
SEED = 5
_numbers = itertools.count()

Program = Callable[[list[Any]], list[Any]]
Prepare = Callable[[Any, Placement], Any]
After = Callable[[Any, Any, Any], list[torch.Tensor | None]]


def executions() -> int:
    """Programs of compiled graphs that ran to their end in this process."""
    return _C.counters()["graph_executions"]


def arguments_on(sample: Any, placement: Placement) -> Any:
    """The arguments of a sample, copied."""
    return placement(arguments(sample))


def nothing_after(sample: Any, given: Any, result: Any) -> list[torch.Tensor | None]:
    """No backward."""
    return []


@dataclasses.dataclass
class Trial:
    """A form of an operator, how its arguments are made from a sample, and what follows the call uncompiled (a backward)."""

    form: Callable[..., Any]
    prepare: Prepare = arguments_on
    after: After = nothing_after
    values: bool = True
    computes: torch.dtype | None = None  # if results may be of a wider dtype than that in which they are computed
    programs: int = 1  # that run for one call: a forward and its backward are two

    def eager(self) -> Program:
        """A function of several samples' arguments, with code of its own, so that Dynamo has never seen it."""
        form = self.form

        def program(givens):
            return [form(given[0], *given[1], **given[2]) for given in givens]

        code = program.__code__.replace(co_name=f"program_{next(_numbers)}")
        return types.FunctionType(code, program.__globals__, code.co_name, None, program.__closure__)

    def compiled(self, backend: str = "neuron", *, whole: bool = False) -> Program:
        """The same compiled; `whole` insists on one graph."""
        return torch.compile(self.eager(), backend=backend, fullgraph=whole)

    def run(self, samples: Sequence[Any], device: torch.device, program: Program | None = None) -> list[Facts]:
        """Call once with all samples, by default eagerly. An error counts for each of them."""
        givens = [self.prepare(sample, Placement(device)) for sample in samples]
        versions = [[t._version for t in strided(given)] for given in givens]
        seed_all(SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results = (program or self.eager())(givens)
                gradients = [self.after(*each) for each in zip(samples, givens, results, strict=True)]
            except Exception as error:
                return [Facts(error=error.with_traceback(None)) for _ in samples]
        return [facts_of(*each) for each in zip(results, givens, versions, gradients, strict=True)]

    def exact(self, sample: Any) -> Facts:
        """What the sample gives in float64, on the CPU, of the same numbers."""
        prepare = lambda given, placement: wide(self.prepare(given, placement))  # noqa: E731
        return dataclasses.replace(self, prepare=prepare).run([sample], CPU)[0]

    def differences(self, one: Facts, other: Facts) -> list[str]:
        """In what two calls differ."""
        return differences(one, other, values=self.values, computes=self.computes)

    def all_same(self, ones: list[Facts], others: list[Facts]) -> bool:
        """Whether nothing differs in any sample."""
        return not any(self.differences(one, other) for one, other in zip(ones, others, strict=True))

    def aot_eager_differences(self, sample: Any, device: torch.device) -> list[str]:
        """In what PyTorch's own backend that only traces differs from eager."""
        (eager,), (compiled,) = self.run([sample], device), self.run([sample], device, self.compiled("aot_eager"))
        return self.differences(compiled, eager)


class Judge:
    """Judges samples and counts what became of them."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    def samples(self, trial: Trial, samples: Sequence[Any]) -> None:
        """Judge all: those that eager refuses alone, the others in groups."""
        accepted = []
        for sample in samples:
            if trial.run([sample], DEVICE)[0].error is not None:
                self.alone(trial, sample)
            else:
                accepted.append(sample)
        for start in range(0, len(accepted), TOGETHER):
            self.group(trial, accepted[start : start + TOGETHER])

    def group(self, trial: Trial, samples: Sequence[Any]) -> None:
        """Judge samples in one graph; if that does not go, one by one."""
        if len(samples) > 1:
            eager = trial.run(samples, DEVICE)
            before = executions()
            compiled = trial.run(samples, DEVICE, trial.compiled(whole=True))
            if executions() - before >= trial.programs and trial.all_same(compiled, eager):
                self.counts["compared"] += len(samples)
                return
        for sample in samples:
            self.alone(trial, sample)

    def alone(self, trial: Trial, sample: Any) -> None:
        """Judge one sample in a graph of its own."""
        (eager,) = trial.run([sample], DEVICE)
        before = executions()
        (compiled,) = trial.run([sample], DEVICE, trial.compiled())
        ran = executions() - before
        found = trial.differences(compiled, eager)
        if not found:
            self.counts["compared" if eager.error is not None or ran >= trial.programs else "not compiled"] += 1
            return
        if only_values(found) and as_near_as(compiled, eager, trial.exact(sample)):
            self.counts["compared"] += 1
            return
        # Accept what PyTorch's own backend does on the CPU too.
        on_cpu = trial.aot_eager_differences(sample, CPU)
        if not set(found) <= set(on_cpu):
            on_device = trial.aot_eager_differences(sample, DEVICE)
            text = f"compiled: {found}; with aot_eager on the device: {on_device}, on the CPU: {on_cpu}; sample {sample}"
            raise AssertionError(text[:3000]) from compiled.error
        self.counts["as aot_eager on the CPU"] += 1


class Comparisons(int):
    """The number of samples compared; `others` counts those of which there was nothing to compare, by what became of them."""

    others: dict[str, int]


def judge(trials: Iterable[tuple[Trial, Sequence[Any]]]) -> Comparisons:
    """Compare samples, each trial's with it, with a compiler that has seen nothing. NothingToCompare if none was compiled."""
    judged = Judge()
    torch._dynamo.reset()
    limits = torch._dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=10000)
    with limits, torch._functorch.config.patch(enable_autograd_cache=False):
        try:
            for trial, samples in trials:
                judged.samples(trial, samples)
        finally:
            torch._dynamo.reset()
    if not judged.counts["compared"]:
        raise NothingToCompare(", ".join(f"{count} {what}" for what, count in sorted((+judged.counts).items())) or "no sample")
    compared = Comparisons(judged.counts.pop("compared"))
    compared.others = dict(judged.counts)
    return compared
