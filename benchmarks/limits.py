"""The limits of this machine, measured in the same run as what is compared with them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

PROGRAM = Path(__file__).parents[1] / "build" / "tests" / "cpp" / "machine_limits"


@dataclass(frozen=True)
class Limits:
    """What a number of threads reaches at best.

    Attributes:
        read_bandwidth: bytes a second from memory.
        float32: operations a second (a multiply-add is two) in registers.
        bfloat16: likewise, of the faster of dot products and float32.
    """

    read_bandwidth: float
    float32: float
    bfloat16: float

    def at_best(self, other: Limits) -> Limits:
        """The larger of both measurements: a limit is what the machine can, and its host may take from it at times."""
        return Limits(max(self.read_bandwidth, other.read_bandwidth), max(self.float32, other.float32), max(self.bfloat16, other.bfloat16))

    def flops(self, dtype: torch.dtype) -> float:
        """Operations a second of a matrix product with operands of a dtype."""
        return self.bfloat16 if dtype == torch.bfloat16 else self.float32


def machine_limits(threads: int) -> Limits:
    """Measure (a second or so), with a program of its own: `make build` makes it."""
    finished = subprocess.run([PROGRAM, str(threads)], capture_output=True, text=True, check=True)
    measured = json.loads(finished.stdout)
    return Limits(measured["read_bandwidth"], measured["float32"], measured["bfloat16"])
