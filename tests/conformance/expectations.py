"""The cases that are known not to hold: `expectations.yaml`, a list of patterns with reasons."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("expectations.yaml")


@dataclasses.dataclass(frozen=True)
class Expectation:
    """Cases whose id matches `case` (shell pattern over `template/subject/dtype`) fail, for `reason`; or are not run, if `skip`.

    With `tier`, only in that tier: the samples that fail may not be among the few of the quick one.
    """

    case: str
    reason: str
    skip: bool = False
    tier: str | None = None


@functools.cache
def expectations() -> tuple[Expectation, ...]:
    """The entries of the file, in its order. An entry may name several cases."""
    entries = yaml.safe_load(FILE.read_text()) or []
    return tuple(
        Expectation(case=case, reason=entry["reason"], skip=entry.get("skip", False), tier=entry.get("tier"))
        for entry in entries
        for case in entry["cases"]
    )


@functools.cache
def _by_text() -> tuple[dict[str, Expectation], re.Pattern[str], tuple[Expectation, ...]]:
    """Names of cases, one expression for all patterns together (nearly every case is none of them), and the patterns."""
    exact = {e.case: e for e in expectations() if not any(c in e.case for c in "*?[")}
    patterns = tuple(e for e in expectations() if e.case not in exact)
    return exact, re.compile("|".join(fnmatch.translate(e.case) for e in patterns)), patterns


def expectation_for(case_id: str, tier: str) -> Expectation | None:
    """The entry for a case in a tier, if there is one."""
    exact, any_pattern, patterns = _by_text()
    found = exact.get(case_id)
    if found is None and any_pattern.match(case_id):
        found = next((e for e in patterns if fnmatch.fnmatchcase(case_id, e.case)), None)
    return found if found is None or found.tier in (None, tier) else None
