"""Prints the totals of the ecosystem suites and writes them to `docs/ecosystem.md`."""

from __future__ import annotations

import sys
from collections import defaultdict

from tests.ecosystem import paths
from tests.ecosystem.expectations import read_expectations
from tests.ecosystem.outcomes import Comparison, Outcome, compare, finished_file, read_outcomes
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
    names = [unit.name for unit in units]
    cpu = read_outcomes(name, names, "cpu")
    neuron = read_outcomes(name, names, "neuron")
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
    rows = []
    good = True
    for name, units in chosen.items():
        result, cpu, idle = _compare_suite(name, units)
        results[name] = result
        rows.append(_row(name, result, sum(needs_hub(outcome) for outcome in cpu.values())))
        missing = sorted(set(_missing(name, units)))
        for test, outcome in result.lost.items():
            print(f"LOST {name} {test}: {outcome.outcome}: {outcome.message}")
        for test in result.unexpected_passes:
            print(f"UNEXPECTED PASS {name} {test}: take it out of expectations.yaml")
        for pattern in idle if document else []:
            print(f"IDLE EXPECTATION {name} {pattern}: matches no test")
        if missing:
            print(f"NOT RUN {name}: {', '.join(missing)}")
        good = good and result.clean and not missing and not (document and idle)
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
        _write_document(rows, results)
    return good


def _write_document(rows: list[str], results: dict[str, Comparison]) -> None:
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
        "Tests that need the hub fail on both devices, since nothing is downloaded while they run; the column counts them.",
        "",
        "## Passes on the CPU and not on neuron, unexplained",
        "",
        *(lost or ["None."]),
        "",
        "## Passes on the CPU and not on neuron, with its cause",
        "",
        *_explained(results),
        "",
        "## Files left out on both devices",
        "",
        *left_out,
        "",
    ]
    paths.DOCUMENT.write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {paths.DOCUMENT.relative_to(paths.ROOT)}")
