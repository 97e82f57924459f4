"""Prints the totals of the ecosystem suites and writes them to `docs/ecosystem.md`."""

from __future__ import annotations

import sys
from collections import defaultdict

from tests.ecosystem import paths
from tests.ecosystem.expectations import read_expectations
from tests.ecosystem.outcomes import Comparison, Outcome, compare, finished_file, read_outcomes, same_test
from tests.ecosystem.sources import installed_version
from tests.ecosystem.suites import SUITES, Unit

PACKAGES = ("torch", "transformers", "accelerate", "peft")
HUB_WORDS = (
    "couldn't connect",
    "offline",
    "huggingface.co",
    "127.0.0.1",
    "LocalEntryNotFound",
    "Cannot find an appropriate cached snapshot",
)


def needs_hub(outcome: Outcome) -> bool:
    """Whether a test failed because there is no hub."""
    return outcome.outcome == "failed" and any(word in outcome.message for word in HUB_WORDS)


def _compare_suite(name: str, units: list[Unit]) -> tuple[Comparison, dict[str, Outcome], list[str]]:
    cpu: dict[str, Outcome] = {}
    neuron: dict[str, Outcome] = {}
    unfinished = set(_missing(name, units))
    for unit in units:
        found = {device: read_outcomes(name, [unit.name], device) for device in ("cpu", "neuron")}
        if unit.name in unfinished:
            # What has no outcome on one of the devices has not run there yet, which says nothing.
            both = {same_test(test) for test in found["cpu"]} & {same_test(test) for test in found["neuron"]}
            found = {
                device: {test: outcome for test, outcome in tests.items() if same_test(test) in both} for device, tests in found.items()
            }
        cpu.update(found["cpu"])
        neuron.update(found["neuron"])
    expectations, idle = read_expectations(name, neuron)
    return compare(cpu, neuron, expectations), cpu, idle


def _row(name: str, result: Comparison, hub: int) -> str:
    cpu, neuron = result.cpu, result.neuron
    cells = [name, result.tests, cpu["passed"], neuron["passed"], len(result.lost), len(result.expected)]
    cells += [cpu["skipped"] + cpu["xfailed"], hub, cpu["failed"] + cpu["crashed"] - hub]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


HEADER = (
    "| suite | tests | passed on CPU | passed on neuron | CPU only, unexplained | CPU only, explained |"
    " skipped on CPU | need the hub | fail on CPU too |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def _missing(name: str, units: list[Unit]) -> list[str]:
    """Units of a suite that have not run to their end on both devices."""
    return [unit.name for unit in units for device in ("cpu", "neuron") if not finished_file(name, unit.name, device).exists()]


def _explained(results: dict[str, Comparison]) -> list[str]:
    """Section of the document that names what passes on the CPU only."""
    lines = []
    for name, result in results.items():
        by_reason: dict[str, list[str]] = defaultdict(list)
        for test, reason in result.expected.items():
            by_reason[reason].append(test)
        for reason, tests in by_reason.items():
            lines += [f"- **{name}**, {len(tests)} tests: {reason}", *(f"  - `{test}`" for test in tests[:5])]
            if len(tests) > 5:
                lines.append(f"  - and {len(tests) - 5} more of the same kind (`tests/ecosystem/expectations.yaml`)")
    return lines or ["None."]


def write_report(chosen: dict[str, list[Unit]], *, document: bool) -> bool:
    """Print the comparison of the chosen units; with `document`, write `docs/ecosystem.md`. Returns whether all is well."""
    results: dict[str, Comparison] = {}
    not_run: dict[str, list[str]] = {}
    rows = []
    hub = 0
    good = True
    for name, units in chosen.items():
        result, cpu, idle = _compare_suite(name, units)
        results[name] = result
        needing = sum(needs_hub(outcome) for outcome in cpu.values())
        hub += needing
        rows.append(_row(name, result, needing))
        missing = sorted(set(_missing(name, units)))
        for test, outcome in result.lost.items():
            print(f"LOST {name} {test}: {outcome.outcome}: {outcome.message}")
        for test in result.unexpected_passes:
            print(f"UNEXPECTED PASS {name} {test}: take it out of expectations.yaml")
        idle = idle if document and not missing else []
        for pattern in idle:
            print(f"IDLE EXPECTATION {name} {pattern}: matches no test")
        if missing:
            not_run[name] = missing
            print(f"NOT RUN {name}: {', '.join(missing)}")
        good = good and result.clean and not missing and not idle
    total = Comparison()
    for result in results.values():
        total.tests += result.tests
        total.cpu.update(result.cpu)
        total.neuron.update(result.neuron)
        total.lost.update(result.lost)
        total.expected.update(result.expected)
    print("\n".join([HEADER, *rows]))
    print(f"{total.neuron['passed']} passed on neuron, {len(total.lost)} passed on the CPU only without an explanation")
    if document:
        _write_document([*rows, _row("all", total, hub)], results, not_run)
    return good


def _write_document(rows: list[str], results: dict[str, Comparison], not_run: dict[str, list[str]]) -> None:
    versions = ", ".join(f"{package} {installed_version(package)}" for package in PACKAGES)
    pins = [
        line.replace("==", " ")
        for path in (paths.REQUIREMENTS, paths.VISION_REQUIREMENTS)
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(("diffusers", "timm", "sentence-transformers", "torchvision"))
    ]
    lost = [f"- {name}: `{test}`: {outcome.message}" for name, result in results.items() for test, outcome in result.lost.items()]
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
        "",
        "## Passes on the CPU and not on neuron, unexplained",
        "",
        *(lost or ["None."]),
        "",
        "## Passes on the CPU and not on neuron, with its cause",
        "",
        *_explained(results),
        "",
        "## Not run to the end on both devices",
        "",
        "Tests of these files that have an outcome on both devices are in the numbers above; `make ecosystem` runs the rest.",
        "",
        *([f"- {name}: {', '.join(units)}" for name, units in not_run.items()] or ["None."]),
        "",
        "## Files left out on both devices",
        "",
        *left_out,
        "",
    ]
    paths.DOCUMENT.write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {paths.DOCUMENT.relative_to(paths.ROOT)}")
