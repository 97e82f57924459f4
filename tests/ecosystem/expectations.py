"""Tests that pass on the CPU and are known not to pass on `neuron`, each with a cause outside the project."""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from tests.ecosystem import paths
from tests.ecosystem.outcomes import Outcome, same_test


def read_expectations(suite: str, neuron: Mapping[str, Outcome]) -> tuple[dict[str, str], list[str]]:
    """Expectations of a suite: reason by test id, and patterns that match no test, which are errors.

    An entry of `expectations.yaml` has `suite`, `reason`, and lists of regular expressions: `tests`, over ids of tests that fail on
    `neuron`, `failures`, over the message with which tests fail there, or `skips`, over the message with which they skip themselves.
    """
    entries = yaml.safe_load(paths.EXPECTATIONS.read_text(encoding="utf-8")) or []
    reasons: dict[str, str] = {}
    idle = []
    for entry in entries:
        if entry["suite"] != suite:
            continue
        for pattern in entry.get("tests", []):
            matching = [same_test(test) for test in neuron if re.fullmatch(pattern, same_test(test))]
            if not matching:
                idle.append(pattern)
            reasons.update(dict.fromkeys(matching, entry["reason"]))
        for words, kind in (("failures", "failed"), ("skips", "skipped")):
            for pattern in entry.get(words, []):
                found = [
                    same_test(test) for test, result in neuron.items() if result.outcome == kind and re.search(pattern, result.message)
                ]
                if not found:
                    idle.append(pattern)
                reasons.update(dict.fromkeys(found, entry["reason"]))
    return reasons, idle
