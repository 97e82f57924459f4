"""One compiled function, called with one sample after the other as a user's would be, then with all of them again.

Dynamo's guards choose the right program, changed shapes and numbers compile anew with its automatic dynamic shapes on, and the second round
compiles nothing.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.utils import counters

from ..case import NothingToCompare, source
from ..operators import UNINITIALISED, forward_dtypes, one_dtype, operator_cases, some_samples
from ..samples import CPU, DEVICE
from .compiled import seedless
from .compiled_facts import differences
from .compiled_trial import Comparisons, Trial, executions

SAMPLES = 4


def differences_of_aot_eager(trial: Trial, samples: Sequence[Any]) -> list[str]:
    """In what PyTorch's own backend that only traces differs from eager on the CPU at the last of these samples."""
    compiled = trial.compiled("aot_eager")
    for sample in samples:
        (eager,), (facts,) = trial.run([sample], CPU), trial.run([sample], CPU, compiled)
    return differences(facts, eager, values=trial.values)


def check(op, dtype: torch.dtype, most: int | None) -> int:
    torch._dynamo.reset()
    trial = Trial(seedless(op), values=op.name not in UNINITIALISED)
    compiled = trial.compiled("neuron")
    samples = [s for s in some_samples(op, dtype, SAMPLES) if trial.run([s], DEVICE)[0].error is None]
    counts: collections.Counter[str] = collections.Counter()
    for again in (False, True):
        graphs = counters["neuron"]["compiled_graphs"]
        for index, sample in enumerate(samples):
            (eager,) = trial.run([sample], DEVICE)
            before = executions()
            (facts,) = trial.run([sample], DEVICE, compiled)
            if executions() == before and facts.error is None:
                continue
            found = differences(facts, eager, values=trial.values)
            # Accept what PyTorch's own backend does on the CPU after the same calls.
            if found and set(found) <= set(differences_of_aot_eager(trial, samples[: index + 1])):
                counts["as aot_eager on the CPU"] += 1
                continue
            assert not found, f"{'again' if again else 'first'}: {found} {facts.error or ''}; sample {sample}"[:3000]
            counts["compared"] += 1
        assert not again or counters["neuron"]["compiled_graphs"] == graphs, "a sample seen before was compiled anew"
    torch._dynamo.reset()
    if not counts["compared"]:
        raise NothingToCompare(f"{len(samples)} samples of which none was compiled")
    compared = Comparisons(counts.pop("compared"))
    compared.others = dict(counts)
    return compared


@source("compiled_shapes")
def cases():
    chosen = operator_cases("compiled_shapes", check, dtypes=lambda op: {one_dtype(op, forward_dtypes(op))} - {None})
    return (dataclasses.replace(case, quick=False) for case in chosen)
