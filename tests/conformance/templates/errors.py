"""Every error input of the databases raises the CPU's error: same type, same message."""

from __future__ import annotations

from functools import partial

import torch

from ..case import source
from ..compare import assert_same_error, outcome
from ..operators import operator_cases
from ..samples import CPU, DEVICE, arguments, call, place, seed_all


def check(op, dtype: torch.dtype, most: int | None) -> int:
    seed_all()
    compared = 0
    for error_input in op.error_inputs("cpu"):
        given = arguments(error_input.sample_input)
        on_cpu, on_device = place(given, CPU), place(given, DEVICE)
        reference = outcome(partial(call, op.op, on_cpu))
        assert_same_error(outcome(partial(call, op.op, on_device)), reference)
        compared += 1
    return compared


@source("errors")
def cases():
    # The inputs of an OpInfo's error function do not depend on a dtype.
    return operator_cases("errors", check, dtypes=lambda op: {torch.float32}, where=lambda op: op.error_inputs_func is not None)
