"""Reads recorded outcomes and compares two devices."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ecosystem import paths


@dataclass(frozen=True)
class Outcome:
    """What became of one test: `passed`, `failed`, `skipped`, `xfailed` or `crashed`, and the first line of its message."""

    outcome: str
    message: str = ""
    seconds: float = 0.0


def record_file(suite: str, unit: str, device: str) -> Path:
    """File into which one process per device records."""
    return paths.RESULTS / suite / device / f"{unit}.jsonl"


def state_file(suite: str, unit: str, device: str) -> Path:
    """Says for which build, versions and selection the record was made, and whether to its end."""
    return record_file(suite, unit, device).with_suffix(".state")


def _lines(suite: str, unit: str, device: str) -> list[dict[str, Any]]:
    path = record_file(suite, unit, device)
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def read_outcomes(suite: str, units: Iterable[str], device: str) -> dict[str, Outcome]:
    """Outcome of every test of the units by its id; of one that ran again, the last."""
    found: dict[str, Outcome] = {}
    for unit in units:
        for line in _lines(suite, unit, device):
            if "outcome" in line:
                found[line["test"]] = Outcome(line["outcome"], line["message"], line["seconds"])
    return found


@dataclass
class Extent:
    """How much of a unit there is: tests that its files have, tests that were selected, and seconds of CPU time that they took."""

    collected: int = 0
    selected: int = 0
    cpu_seconds: float = 0.0


def read_extent(suite: str, unit: str, device: str) -> Extent:
    """The extent of one unit on one device. Processes that crashed left no note of their time."""
    extent = Extent()
    for line in _lines(suite, unit, device):
        if "collected" in line:
            extent.collected, extent.selected = line["collected"], line["selected"]
        extent.cpu_seconds += line.get("cpu_seconds", 0.0)
    return extent


@dataclass
class Comparison:
    """One suite on the CPU and on `neuron`, after the expectations were taken into account."""

    tests: int = 0
    cpu: Counter[str] = field(default_factory=Counter)
    neuron: Counter[str] = field(default_factory=Counter)
    lost: dict[str, Outcome] = field(default_factory=dict)
    gained: list[str] = field(default_factory=list)
    expected: dict[str, str] = field(default_factory=dict)
    unexpected_passes: list[str] = field(default_factory=list)
    only_on_neuron: dict[str, Outcome] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether everything that passes on the CPU passes on `neuron`, or is expected not to."""
        return not self.lost and not self.unexpected_passes


def same_test(test: str) -> str:
    """Id of a test without the name of the device, which some tests carry as a parameter."""
    return test.replace("neuron", "cpu")


def compare(cpu: dict[str, Outcome], neuron: dict[str, Outcome], expectations: dict[str, str]) -> Comparison:
    """Compare outcomes per test. `expectations` maps tests that fail on `neuron` only to the reason; one that passes is an error too."""
    # Of a test that runs on the host and on the device, the latter counts.
    on_neuron = {test: outcome for test, outcome in neuron.items() if same_test(test) == test}
    on_neuron.update({same_test(test): outcome for test, outcome in neuron.items() if same_test(test) != test})
    result = Comparison(tests=len(cpu))
    result.cpu.update(outcome.outcome for outcome in cpu.values())
    result.neuron.update(outcome.outcome for outcome in neuron.values())
    for test, reference in cpu.items():
        found = on_neuron.get(same_test(test), Outcome("missing", "not collected on neuron"))
        if reference.outcome == "passed" and found.outcome != "passed":
            if same_test(test) in expectations:
                result.expected[test] = expectations[same_test(test)]
            else:
                result.lost[test] = found
        elif found.outcome == "passed":
            if same_test(test) in expectations:
                result.unexpected_passes.append(test)
            if reference.outcome != "passed":
                result.gained.append(test)
        elif reference.outcome in {"skipped", "xfailed"} and found.outcome in {"failed", "crashed"}:
            result.only_on_neuron[test] = found
    return result
