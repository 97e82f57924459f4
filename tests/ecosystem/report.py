"""Prints the totals of the ecosystem suites and writes them to `docs/ecosystem.md`."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.ecosystem import paths
from tests.ecosystem.expectations import read_expectations
from tests.ecosystem.measured import State, read_state
from tests.ecosystem.outcomes import Comparison, Outcome, compare, read_extent, read_outcomes, same_test, state_file
from tests.ecosystem.sources import installed_version
from tests.ecosystem.suites import SHARDS, SUITES, Unit

DEVICES = ("cpu", "neuron")
# Characters of a message in the document.
MESSAGE = 160
PACKAGES = ("torch", "transformers", "accelerate", "peft")
HUB_WORDS = (
    "couldn't connect",
    "offline",
    "huggingface.co",
    "127.0.0.1",
    "LocalEntryNotFound",
    "Cannot find an appropriate cached snapshot",
    "Couldn't reach",
    "not fully cached locally",
    "Can't find 'adapter_config.json'",
    "adapter model file not found",
)


def needs_hub(outcome: Outcome) -> bool:
    """Whether a test failed because there is no hub."""
    return outcome.outcome == "failed" and any(word in outcome.message for word in HUB_WORDS)


@dataclass
class SuiteResult:
    """What became of one suite: the comparison, and where, when and how much of it was measured."""

    comparison: Comparison = field(default_factory=Comparison)
    cpu: dict[str, Outcome] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    commits: set[str] = field(default_factory=set)
    collected: int = 0
    cpu_minutes: float = 0.0

    @property
    def hub(self) -> int:
        """Tests that failed on the CPU for want of a hub."""
        return sum(needs_hub(outcome) for outcome in self.cpu.values())

    def row(self, name: str) -> str:
        """Row of the table below `HEADER`."""
        cpu, neuron = self.comparison.cpu, self.comparison.neuron
        cells = [name, self.comparison.tests, self.collected, cpu["passed"], neuron["passed"]]
        cells += [len(self.comparison.lost), len(self.comparison.expected)]
        cells += [cpu["skipped"] + cpu["xfailed"], self.hub, cpu["failed"] + cpu["crashed"] - self.hub]
        cells += [f"{self.cpu_minutes:.0f}", ", ".join(sorted(self.commits))]
        return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _measure_suite(name: str, units: list[Unit]) -> SuiteResult:
    """Read what was recorded of a suite and compare the devices."""
    result = SuiteResult()
    neuron: dict[str, Outcome] = {}
    for unit in units:
        found = {device: read_outcomes(name, [unit.name], device) for device in DEVICES}
        states = {device: read_state(state_file(name, unit.name, device)) for device in DEVICES}
        extents = {device: read_extent(name, unit.name, device) for device in DEVICES}
        result.cpu_minutes += sum(extent.cpu_seconds for extent in extents.values()) / 60
        result.collected += max(extent.collected for extent in extents.values())
        if not all(state is not None and state.finished for state in states.values()):
            result.missing.append(unit.name)
            # What has no outcome on one of the devices has not run there yet, which says nothing.
            both = {same_test(test) for test in found["cpu"]} & {same_test(test) for test in found["neuron"]}
            found = {
                device: {test: outcome for test, outcome in tests.items() if same_test(test) in both} for device, tests in found.items()
            }
        elif not all(State.now(unit, device).continues(state) for device, state in states.items()):
            result.stale.append(unit.name)
        measured = states["neuron"]
        if measured is not None and found["neuron"]:
            result.commits.add(measured.commit)
        result.cpu.update(found["cpu"])
        neuron.update(found["neuron"])
    expectations, result.idle = read_expectations(name, neuron)
    result.comparison = compare(result.cpu, neuron, expectations)
    return result


def _total(results: Iterable[SuiteResult]) -> SuiteResult:
    """All suites as one."""
    total = SuiteResult()
    for result in results:
        total.comparison.tests += result.comparison.tests
        total.comparison.cpu.update(result.comparison.cpu)
        total.comparison.neuron.update(result.comparison.neuron)
        total.comparison.lost.update(result.comparison.lost)
        total.comparison.expected.update(result.comparison.expected)
        total.cpu.update(result.cpu)
        total.collected += result.collected
        total.cpu_minutes += result.cpu_minutes
        total.commits |= result.commits
    return total


HEADER = (
    "| suite | tests | of | passed on CPU | passed on neuron | CPU only, unexplained | CPU only, explained |"
    " skipped on CPU | need the hub | fail on CPU too | CPU minutes | measured at commit |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def _by_reason(reasons: dict[str, dict[str, str]], most: int) -> list[str]:
    """Lines of the document with tests, whose reasons are given by suite and test, by the reason; the first `most` tests of each."""
    lines = []
    for name, of_suite in reasons.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for test, reason in of_suite.items():
            groups[reason].append(test)
        for reason, tests in groups.items():
            lines += [f"- **{name}**, {len(tests)} tests: {reason}", *(f"  - `{test}`" for test in tests[:most])]
            if len(tests) > most:
                lines.append(f"  - and {len(tests) - most} more of the same kind")
    return lines or ["None."]


def _messages(outcomes: dict[str, Outcome]) -> dict[str, str]:
    """What went wrong, for a line of the document."""
    return {test: f"`{outcome.message[:MESSAGE] or outcome.outcome}`" for test, outcome in outcomes.items()}


def _print_problems(name: str, result: SuiteResult, *, whole: bool) -> bool:
    """Print what is wrong or missing in a suite; returns whether there is nothing. With `whole`, every expectation must match a test."""
    comparison = result.comparison
    for test, outcome in comparison.lost.items():
        print(f"LOST {name} {test}: {outcome.outcome}: {outcome.message}")
    for test in comparison.unexpected_passes:
        print(f"UNEXPECTED PASS {name} {test}: take it out of expectations.yaml")
    # This project's own tests are about the comparison itself: one that cannot be made is an error.
    broken = [test for test, outcome in result.cpu.items() if SUITES[name].own and outcome.outcome != "passed"]
    for test in broken:
        print(f"BROKEN {name} {test}: {result.cpu[test].outcome} on the CPU: {result.cpu[test].message}")
    idle = result.idle if whole and not result.missing else []
    for pattern in idle:
        print(f"IDLE EXPECTATION {name} {pattern}: matches no test")
    if result.missing:
        print(f"NOT RUN {name}: {', '.join(result.missing)}")
    if result.stale:
        print(f"OF ANOTHER STATE {name} (`run` measures again): {', '.join(result.stale)}")
    return comparison.clean and not (broken or idle or result.missing)


def write_report(chosen: dict[str, list[Unit]], per_stratum: int, *, document: bool) -> bool:
    """Print the comparison of the chosen units; with `document`, write `docs/ecosystem.md`. Returns whether all is well."""
    results = {name: _measure_suite(name, units) for name, units in chosen.items()}
    good = True
    for name, result in results.items():
        good = _print_problems(name, result, whole=document) and good
    total = _total(results.values())
    rows = [result.row(name) for name, result in results.items()]
    print("\n".join([HEADER, *rows, total.row("all")]))
    passed, lost = total.comparison.neuron["passed"], len(total.comparison.lost)
    ran = f"{total.comparison.tests} of {total.collected} tests"
    print(f"{passed} passed on neuron, {lost} passed on the CPU only without an explanation, {ran}")
    if document:
        _write_document([*rows, total.row("all")], results, total, per_stratum)
    return good


def _selection(per_stratum: int) -> list[str]:
    """Section of the document that says which tests ran."""
    if not per_stratum:
        return ["All tests of the files ran."]
    number = "one" if per_stratum == 1 else str(per_stratum)
    files = ", ".join(f"`{name}`" for name in SHARDS)
    return [
        f"Of those that the files hold (`of`), `tests` ran. Of peft's files with thousands of tests ({files}),",
        f"at least {number} of each of these is selected: function with model, model with kind of adapter, named case. Which ones,",
        "a hash of the test's id decides (`tests/ecosystem/plugins/ecosystem_selection.py`): the same everywhere.",
        "Other files run whole.",
        "`python -m tests.ecosystem run --per-stratum 3` selects more, `--full` everything.",
    ]


def _write_document(rows: list[str], results: dict[str, SuiteResult], total: SuiteResult, per_stratum: int) -> None:
    versions = ", ".join(f"{package} {installed_version(package)}" for package in PACKAGES)
    pins = [
        line.replace("==", " ")
        for path in (paths.REQUIREMENTS, paths.VISION_REQUIREMENTS)
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("diffusers", "timm", "sentence-transformers", "torchvision"))
    ]
    lost = {name: _messages(result.comparison.lost) for name, result in results.items()}
    explained = {name: result.comparison.expected for name, result in results.items()}
    only_on_neuron = {name: _messages(result.comparison.only_on_neuron) for name, result in results.items()}
    not_run = {name: result.missing for name, result in results.items() if result.missing}
    stale = {name: result.stale for name, result in results.items() if result.stale}
    left_out = [f"- {suite.name}: `{file}`: {why}" for suite in SUITES.values() for file, why in suite.left_out.items()]
    lines = [
        "# Ecosystem",
        "",
        "The tests that other projects ship, and models of further libraries, on the CPU (without this project) and on `neuron`.",
        "Generated by `python -m tests.ecosystem report` (`make ecosystem` runs what is missing, then writes this); not edited by hand.",
        "",
        f"Python {sys.version.split()[0]}, {versions}, {', '.join(pins)}.",
        "",
        HEADER,
        *rows,
        "",
        "`accelerate` and `peft` are the tests in their source packages, at the installed version; `transformers` is",
        "`tests/test_modeling_common.py` of its source package on small models of many architectures, and own comparisons with the CPU.",
        "Nothing is downloaded while tests run: hub names resolve to small random models made here, and tests that need other files",
        "of the hub fail on both devices (counted). On `neuron` one core is visible, as there is one CPU.",
        "A plus sign behind a commit: the sources had changes that were not committed. The time is of both devices together"
        + (f": about {total.cpu_minutes / 2:.0f} minutes on two cores that do nothing else." if not not_run else "."),
        "Earlier states of this document, measured with other builds, are in its history.",
        "",
        "## Which tests ran",
        "",
        *_selection(per_stratum),
        "",
        "## Passes on the CPU and not on neuron, unexplained",
        "",
        *_by_reason(lost, most=1000),
        "",
        "## Passes on the CPU and not on neuron, with its cause",
        "",
        *_by_reason(explained, most=5),
        "",
        "## Skipped on the CPU, fails on neuron",
        "",
        "There is no result of the CPU to compare with.",
        "",
        *_by_reason(only_on_neuron, most=5),
        "",
        "## Not run to the end on both devices",
        "",
        "Tests of these files that have an outcome on both devices are in the numbers above, and `of` counts files that were begun;",
        "`make ecosystem` runs the rest.",
        "",
        *([f"- {name}: {', '.join(units)}" for name, units in not_run.items()] or ["None."]),
        "",
        "## Measured with another build or other versions than the installed ones",
        "",
        *([f"- {name}: {', '.join(units)}" for name, units in stale.items()] or ["None."]),
        "",
        "## Files left out on both devices",
        "",
        *left_out,
        "",
    ]
    paths.DOCUMENT.write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {paths.DOCUMENT.relative_to(paths.ROOT)}")
