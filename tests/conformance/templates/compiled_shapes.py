"""One compiled function, called with one sample after the other as a user's would be, then with all of them again.

Dynamo's guards choose the right program, changed shapes and numbers compile anew with its automatic dynamic shapes on, and the second round
compiles nothing.
"""

from __future__ import annotations

import dataclasses

import torch
import torch._dynamo
from torch._dynamo.utils import counters

from ..case import NothingToCompare, source
from ..operators import UNINITIALISED, forward_dtypes, one_dtype, operator_cases, some_samples
from ..samples import DEVICE
from .compiled import seedless
from .compiled_facts import differences
from .compiled_trial import Trial, executions

SAMPLES = 4


def check(op, dtype: torch.dtype, most: int | None) -> int:
    torch._dynamo.reset()
    trial = Trial(seedless(op), values=op.name not in UNINITIALISED)
    compiled = trial.compiled("neuron")
    samples = [s for s in some_samples(op, dtype, SAMPLES) if trial.run([s], DEVICE)[0].error is None]
    compared = 0
    for again in (False, True):
        graphs = counters["neuron"]["compiled_graphs"]
        for sample in samples:
            (eager,) = trial.run([sample], DEVICE)
            before = executions()
            (facts,) = trial.run([sample], DEVICE, compiled)
            if executions() == before and facts.error is None:
                continue
            found = differences(facts, eager, values=trial.values)
            assert not found, f"{'again' if again else 'first'}: {found}; sample {sample}"[:3000]
            compared += 1
        assert not again or counters["neuron"]["compiled_graphs"] == graphs, "a sample seen before was compiled anew"
    torch._dynamo.reset()
    if not compared:
        raise NothingToCompare(f"{len(samples)} samples of which none was compiled")
    return compared


@source("compiled_shapes")
def cases():
    chosen = operator_cases("compiled_shapes", check, dtypes=lambda op: {one_dtype(op, forward_dtypes(op))} - {None})
    return (dataclasses.replace(case, quick=False) for case in chosen)
