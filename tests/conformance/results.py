"""Outcomes of cases on disk, one line of JSON each, kept with the digest of the build that they belong to."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from .case import module_of, template_names

FOLDER = Path(__file__).parents[2] / "build" / "conformance"
# Outcomes that need no attention; a case with one of them is not run again.
GOOD = ("passed", "xfailed", "skipped")


# What every case stands on.
CORE = ("case", "compare", "operators", "samples", "test_conformance")


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def build_digest() -> str:
    """A digest of the plugin and of the core of this suite: outcomes of another build say nothing."""
    specification = importlib.util.find_spec("torch_neuronx")
    assert specification is not None and specification.origin is not None
    package, suite = Path(specification.origin).parent, Path(__file__).parent
    return _digest([*package.rglob("*.py"), *package.glob("*.so"), *(suite / f"{name}.py" for name in CORE)])


@functools.cache
def template_digest(template: str) -> str:
    """A digest of the files of a template: its module and those whose name begins with the same word. Empty if it is no more."""
    if template not in template_names():
        return ""
    word = module_of(template).rpartition(".")[2].partition("_")[0]
    return _digest((Path(__file__).parent / "templates").glob(f"{word}*.py"))


@functools.cache
def commit() -> str:
    """The commit of the plugin's sources, for the report."""
    specification = importlib.util.find_spec("torch_neuronx")
    assert specification is not None and specification.origin is not None
    command = ["git", "-C", str(Path(specification.origin).parent), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def latest_rows(tier: str) -> dict[str, dict[str, Any]]:
    """The last row of each case with any build."""
    rows: dict[str, dict[str, Any]] = {}
    for file in sorted(FOLDER.glob(f"{tier}-*.jsonl"), key=lambda file: file.stat().st_mtime):
        rows |= {row["case"]: row for row in map(json.loads, file.read_text().splitlines())}
    return rows


def good_rows_of_any_build(tier: str) -> dict[str, dict[str, Any]]:
    """The rows of `latest_rows` that need no attention and whose template is still the one that ran."""
    rows = latest_rows(tier)
    return {case: row for case, row in rows.items() if row["outcome"] in GOOD and row["code"] == template_digest(case.partition("/")[0])}


class Results:
    """The outcomes of one tier with the present build."""

    def __init__(self, tier: str) -> None:
        self.file = FOLDER / f"{tier}-{build_digest()}.jsonl"

    def running(self, part: int) -> Path:
        """The file that names the case which a part is running."""
        return self.file.with_suffix(f".part{part}")

    def append(self, **row: Any) -> None:
        """Keep an outcome. Several processes append to one file: a line is one write."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as stream:
            code = template_digest(row["case"].partition("/")[0])
            stream.write(json.dumps({"compared": 0, "seconds": 0.0, "reason": "", "code": code, "commit": commit()} | row) + "\n")

    def rows(self) -> dict[str, dict[str, Any]]:
        """The last row of each case whose template is still the one that ran."""
        if not self.file.exists():
            return {}
        rows = {row["case"]: row for row in map(json.loads, self.file.read_text().splitlines())}
        return {case: row for case, row in rows.items() if row["code"] == template_digest(case.partition("/")[0])}

    def forget_failures(self) -> None:
        """Drop what is not good, so that a later run tries it again."""
        rows = self.rows().values()
        if rows:
            self.file.write_text("".join(json.dumps(row) + "\n" for row in rows if row["outcome"] in GOOD))


class Recorder:
    """The pytest plugin that writes outcomes."""

    def __init__(self, tier: str, part: int) -> None:
        self.results = Results(tier)
        self.marker = self.results.running(part)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test item if it is a case."""
        if "::test_case[" not in report.nodeid or report.when == "teardown" or (report.when == "setup" and report.passed):
            return
        outcome, reason = str(report.outcome), ""
        if hasattr(report, "wasxfail"):
            outcome, reason = ("xfailed" if report.skipped else "xpassed"), report.wasxfail
        elif report.skipped:
            reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(crash.message if crash else report.longrepr)[:600]
        self.results.append(
            case=case_of(report.nodeid),
            outcome=outcome,
            reason=reason,
            compared=dict(report.user_properties).get("compared", 0),
            others=dict(report.user_properties).get("others", {}),
            seconds=round(report.duration, 4),
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note what runs, for the case that the process dies in it."""
        if "::test_case[" in nodeid:
            FOLDER.mkdir(parents=True, exist_ok=True)
            self.marker.write_text(case_of(nodeid))


def case_of(nodeid: str) -> str:
    """The case's id in the id of a test item."""
    return nodeid.split("::test_case[", 1)[1].rpartition("]")[0]
