"""Tests that pass on the CPU and are known not to pass on `neuron`, each with a cause outside the project."""

from __future__ import annotations

import re
from collections.abc import Iterable

import yaml

from tests.ecosystem import paths


def read_expectations(suite: str, tests: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Expectations of a suite: reason by test id, and the patterns that match no test (which are errors: they guard nothing).

    An entry of `expectations.yaml` is `{suite, tests, reason}`, where `tests` is a list of regular expressions over whole ids.
    """
    entries = yaml.safe_load(paths.EXPECTATIONS.read_text(encoding="utf-8")) or []
    ids = list(tests)
    reasons: dict[str, str] = {}
    idle = []
    for entry in entries:
        if entry["suite"] != suite:
            continue
        for pattern in entry["tests"]:
            matching = [test for test in ids if re.fullmatch(pattern, test)]
            if not matching:
                idle.append(pattern)
            reasons.update(dict.fromkeys(matching, entry["reason"]))
    return reasons, idle
