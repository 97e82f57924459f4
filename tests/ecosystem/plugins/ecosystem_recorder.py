"""pytest plugin: appends each outcome to a file as it becomes known, so that a crash loses one test and a later run goes on behind it."""

from __future__ import annotations

import json
import os
import resource
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from ecosystem_selection import Candidate, select

RANK = {"skipped": 0, "passed": 1, "failed": 2}
NO_PARAMETERS = SimpleNamespace(params={})


def _first_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The last line of what went wrong, which holds the exception and its message."""
    if report.longrepr is None:
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:300]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[0] if crash is not None and lines else lines[-1] if lines else "")[:300]


class Recorder:
    """Writes one JSON line when a test begins and one when it has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = self._read_known()
        self.reports: dict[str, list[pytest.TestReport]] = {}
        self.begin: dict[str, float] = {}

    def _read_known(self) -> set[str]:
        if not self.path.exists():
            return set()
        lines = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return {line["test"] for line in lines if "outcome" in line}

    def write(self, line: dict[str, object]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what is not selected, what belongs to other parts of a divided file, and what an earlier run has already recorded."""
        shard, shards = (int(number) for number in os.environ.get("ECOSYSTEM_SHARD", "0/1").split("/"))
        part = [item for item in items if zlib.crc32(item.nodeid.replace("neuron", "cpu").encode()) % shards == shard]
        chosen = {item.nodeid for item in items}
        per_stratum = int(os.environ.get("ECOSYSTEM_PER_STRATUM", "0"))
        if per_stratum:
            # Over the whole file, not the part of it: the selection is the same however the file is divided.
            chosen = select((Candidate.of(item.nodeid, getattr(item, "callspec", NO_PARAMETERS).params) for item in items), per_stratum)
        selected = [item for item in part if item.nodeid in chosen]
        self.write({"collected": len(part), "selected": len(selected)})
        mine = {item.nodeid for item in selected} - self.known
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
        items[:] = [item for item in items if item.nodeid in mine]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported, or skips itself, is one test of its own."""
        if report.outcome != "passed" and report.nodeid not in self.known:
            self.write({"test": report.nodeid, "outcome": report.outcome, "message": _first_line(report), "seconds": 0.0})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.begin[nodeid] = time.monotonic()
        self.write({"test": nodeid, "begins": True})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        reports = self.reports.pop(nodeid, [])
        # Of set-up, call and tear-down the worst counts; a test that skips itself still has a passing set-up.
        skipped = [report for report in reports if report.outcome == "skipped"]
        worst = max(reports, key=lambda report: RANK[report.outcome])
        if worst.outcome == "passed" and skipped:
            worst = skipped[0]
        outcome = "xfailed" if worst.outcome == "skipped" and hasattr(worst, "wasxfail") else worst.outcome
        seconds = round(time.monotonic() - self.begin[nodeid], 2)
        self.write({"test": nodeid, "outcome": outcome, "message": _first_line(worst), "seconds": seconds})

    def pytest_sessionfinish(self) -> None:
        """What the process and its children used, which says more than the clock of a machine that does other work as well."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.write({"cpu_seconds": round(sum(usage.ru_utime + usage.ru_stime for usage in used), 1)})


def pytest_configure(config: pytest.Config) -> None:
    """Record into the file that the runner names; not in processes that tests start, which are part of a test."""
    path = os.environ.pop("ECOSYSTEM_RECORD", None)
    if path is not None:
        config.pluginmanager.register(Recorder(Path(path)), "ecosystem-recorder")
