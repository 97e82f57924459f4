"""`python -m tests.conformance`: run a tier in parts, resumable and safe against crashes, and print the totals.

Each part is a pytest process. A part that dies is started again without the case that it died in, which counts as crashed.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import subprocess
import sys
import time
from pathlib import Path

from tqdm import tqdm

from .results import GOOD, Results, build_digest

ROOT = Path(__file__).parents[2]
# A case may take minutes in the full tier; none takes ten.
SECONDS_FOR_A_CASE = 600


def run_part(tier: str, part: int, parts: int, selection: list[str]) -> None:
    """Run one part to its end, through any number of crashes."""
    results = Results(tier)
    while True:
        marker = results.running(part)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "tests/conformance",
            "-q",
            "--no-header",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
        ]
        command += ["--tier", tier, "--shard", f"{part}/{parts}", "--resume", f"--timeout={SECONDS_FOR_A_CASE}"]
        command += selection
        finished = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # 0: passed; 1: some failed; 5: nothing to do.
        if finished.returncode in (0, 1, 5):
            marker.unlink(missing_ok=True)
            return
        if not marker.exists():
            raise RuntimeError(f"part {part}: pytest ended with {finished.returncode} before its first case\n{finished.stdout[-3000:]}")
        results.append(case=marker.read_text(), outcome="crashed", reason=f"the process ended with {finished.returncode}")
        marker.unlink()


def run(tier: str, jobs: int, parts: int, selection: list[str]) -> None:
    """Run all parts, `jobs` at a time, with a progress bar."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool, tqdm(total=parts, unit="part", desc=f"conformance, {tier} tier") as bar:
        waiting = [pool.submit(run_part, tier, part, parts, selection) for part in range(1, parts + 1)]
        for done in concurrent.futures.as_completed(waiting):
            done.result()
            bar.update()


def summary(tier: str) -> tuple[str, list[str]]:
    """One line of totals, and the cases that are neither passed, nor expected to fail, nor without anything to compare."""
    rows = Results(tier).rows()
    counts = collections.Counter(str(row["outcome"]) for row in rows.values())
    bad = [
        f"{case}: {row['outcome']}: {str(row['reason']).splitlines()[0] if row['reason'] else ''}"
        for case, row in sorted(rows.items())
        if row["outcome"] not in GOOD
    ]
    compared = sum(int(row["compared"]) for row in rows.values())
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) + f"; {compared} comparisons", bad


def main() -> int:
    """Parse the command line, run, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--tier", choices=("quick", "full"), default="full", help="quick: what `make test` runs; full: everything (default)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parts at a time (default: the number of CPUs)")
    parser.add_argument("--parts", type=int, help="number of parts (default: 2 a job for quick, 16 a job for full)")
    parser.add_argument("-k", dest="expression", help="pytest's -k: only cases whose id matches")
    parser.add_argument("--missing", action="store_true", help="only cases that have not passed with any build")
    parser.add_argument(
        "--fresh", action="store_true", help="forget outcomes of earlier runs with this build; without it a run goes on where it ended"
    )
    parser.add_argument("--report", action="store_true", help="write docs/conformance.md from the outcomes of the full tier, run nothing")
    options = parser.parse_args()
    if options.report:
        from .report import write

        return write()
    if options.fresh:
        Results(options.tier).file.unlink(missing_ok=True)
    Results(options.tier).forget_failures()
    started = time.monotonic()
    selection = (["-k", options.expression] if options.expression else []) + (["--any-build"] if options.missing else [])
    run(options.tier, options.jobs, options.parts or options.jobs * (2 if options.tier == "quick" else 16), selection)
    totals, bad = summary(options.tier)
    for line in bad:
        print(line)
    print(f"conformance, {options.tier} tier, build {build_digest()}: {totals} in {time.monotonic() - started:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
