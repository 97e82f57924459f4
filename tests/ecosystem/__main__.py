"""Command line of the ecosystem suites: `python -m tests.ecosystem run` and `python -m tests.ecosystem report`."""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import signal
import sys

from tests.ecosystem import paths, sources
from tests.ecosystem.report import write_report
from tests.ecosystem.runner import Job, Limits, run_jobs
from tests.ecosystem.suites import SUITES, Unit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.ecosystem", description=__doc__)
    parser.add_argument(
        "command", choices=("run", "report", "list"), help="run what is missing and report; report only; list suites and files"
    )
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="this suite only (may be repeated)")
    parser.add_argument("--unit", default="*", help="only test files whose name matches this pattern")
    parser.add_argument("--device", action="append", choices=("cpu", "neuron"), help="this device only (may be repeated)")
    parser.add_argument(
        "--quick", action="store_true", help="a few minutes: the files of each suite that say most per second; writes no document"
    )
    parser.add_argument(
        "--per-stratum",
        type=int,
        default=1,
        metavar="N",
        help="of files with thousands of tests, select at least N for each function and model, model and adapter, named case (default 1)",
    )
    parser.add_argument("--full", action="store_true", help="select every test")
    parser.add_argument("--keep", action="store_true", help="do not repeat what ran to its end with another build; the report names it")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results of the selected files first")
    parser.add_argument("--jobs", type=int, default=2, help="test processes at a time (default 2)")
    parser.add_argument("--threads", type=int, default=1, help="threads per test process (default 1)")
    parser.add_argument("--test-timeout", type=int, default=300, help="seconds for one test (default 300)")
    return parser


def _selected(arguments: argparse.Namespace) -> dict[str, list[Unit]]:
    sources.install_requirements(paths.REQUIREMENTS, paths.SITE)
    chosen: dict[str, list[Unit]] = {}
    for name in arguments.suite or list(SUITES):
        units = [unit for unit in SUITES[name].units(arguments.per_stratum) if fnmatch.fnmatch(unit.name, arguments.unit)]
        chosen[name] = [unit for unit in units if unit.quick or not arguments.quick]
    return chosen


def main() -> int:
    """Entry point; returns the exit code: 0 where everything that passes on the CPU passes on `neuron`."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.per_stratum < 1:
        parser.error("--per-stratum takes a number above 0; --full selects every test")
    if arguments.full:
        arguments.per_stratum = 0
    # Ended from outside, it ends its test processes like on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = _selected(arguments)
    if arguments.command == "list":
        for name, units in chosen.items():
            print(f"{name}: {SUITES[name].title}")
            for unit in units:
                print(f"  {unit.name}{'  (quick)' if unit.quick else ''}")
        return 0
    devices = arguments.device or ["cpu", "neuron"]
    if arguments.command == "run":
        jobs = [Job(name, unit, device) for name, units in chosen.items() for unit in units for device in devices]
        if arguments.fresh:
            for job in jobs:
                for path in (paths.RESULTS / job.suite / job.device).glob(f"{job.unit.name}.*"):
                    path.unlink()
        limits = Limits(test_seconds=arguments.test_timeout, threads=arguments.threads)
        run_jobs(jobs, limits, arguments.jobs, keep=arguments.keep)
        shutil.rmtree(paths.WORK / "tmp", ignore_errors=True)
    whole = not (arguments.quick or arguments.suite or arguments.device or arguments.unit != "*")
    return 0 if write_report(chosen, arguments.per_stratum, document=whole) else 1


if __name__ == "__main__":
    sys.exit(main())
