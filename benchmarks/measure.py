"""Paired timing: both sides alternate within one run, so that noise and clock changes hit both alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Result:
    """One benchmark line.

    Attributes:
        name: what was measured.
        value: the figure that is compared with the bar.
        unit: of value; "x" for ratios.
        bar: the limit.
        at_most: whether the bar is an upper limit.
        detail: absolute figures, for orientation only.
    """

    name: str
    value: float
    unit: str
    bar: float
    at_most: bool = True
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the figure keeps the bar."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    def line(self) -> str:
        """The result as one line of text."""
        verdict = "ok" if self.passed else "MISS"
        sign = "<=" if self.at_most else ">="
        return f"{verdict:<5} {self.name:<45} {self.value:8.3f} {self.unit:<2} (bar {sign} {self.bar:g})  {self.detail}"


def seconds(call: Callable[[], object], repeat: int) -> float:
    """Seconds per call, over `repeat` calls."""
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat


def paired(first: Callable[[], object], second: Callable[[], object], *, rounds: int, repeat: int = 1) -> tuple[float, float, float]:
    """Time two calls alternately.

    Returns:
        Median over the rounds of second/first, and the median seconds of each.
    """
    first()
    second()
    pairs = [(seconds(first, repeat), seconds(second, repeat)) for _ in range(rounds)]
    return median(b / a for a, b in pairs), median(a for a, _ in pairs), median(b for _, b in pairs)
