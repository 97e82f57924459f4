"""Choices from bytes: what Hypothesis varies and shrinks is one short string per step; zeros mean the simplest choice everywhere."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Picker:
    """Reads choices from bytes; after the last one every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def byte(self) -> int:
        """The next number below 256."""
        if self._position == len(self._data):
            return 0
        value = self._data[self._position]
        self._position += 1
        return value

    def of(self, choices: Sequence[T]) -> T:
        """One of the choices; the first is the simplest."""
        return choices[self.byte() % len(choices)] if len(choices) > 1 else choices[0]

    def early(self, choices: Sequence[T]) -> T:
        """One of the choices, the first ones more often."""
        if len(choices) == 1:
            return choices[0]
        value = self.byte()
        return choices[min(value % len(choices), value // 16)]

    def number(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return low + self.byte() % (high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in about this share of the cases, never for zero."""
        return self.byte() * 100 >= 256 * (100 - percent)
