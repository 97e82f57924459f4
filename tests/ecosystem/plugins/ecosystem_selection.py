"""Chooses from a file with thousands of parametrized tests a few that meet every combination which matters; the same ones on every machine.

Each test lies in several *strata*: its function with its model, that model with its kind of adapter, and its named case. Tests are visited
in the order of a hash of their id, and one is taken while any of its strata has too few.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Names of parameters whose values are kinds of things to test, not settings of one.
FAMILIES = ("model_id", "config_cls")

Stratum = tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A collected test: its id and, by name, those parameters that are words or classes."""

    test: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, test: str, parameters: Mapping[str, object]) -> Candidate:
        """The candidate of a test with pytest's parameters."""
        labels = {name: value.__name__ if isinstance(value, type) else value for name, value in parameters.items()}
        return cls(test, {name: value for name, value in labels.items() if isinstance(value, str)})

    def strata(self) -> set[Stratum]:
        """What the test is an example of; a test that belongs to no family is one of its own kind."""
        function = self.test.partition("[")[0]
        file = function.partition("::")[0]
        families = {name: self.labels[name] for name in FAMILIES if name in self.labels}
        if not families:
            return {(self.test,)}
        # Where there is a model, the function meets all of them, and the adapters meet all models.
        first = next(name for name in FAMILIES if name in families)
        found: set[Stratum] = {(function, first, families[first]), (file, *families.values())}
        found.update((file, name, value) for name, value in self.labels.items() if name not in FAMILIES)
        return found


def _rank(test: str) -> bytes:
    """Order of visits: the device's name, which stands in some ids, has no part in it."""
    return hashlib.sha256(test.replace("neuron", "cpu").encode()).digest()


def select(candidates: Iterable[Candidate], per_stratum: int) -> set[str]:
    """Ids of the chosen tests: at least `per_stratum` of each stratum, or all of one that has fewer; in whatever order they come."""
    chosen: set[str] = set()
    taken: Counter[Stratum] = Counter()
    for candidate in sorted(candidates, key=lambda candidate: _rank(candidate.test)):
        strata = candidate.strata()
        if any(taken[stratum] < per_stratum for stratum in strata):
            chosen.add(candidate.test)
            taken.update(strata)
    return chosen
