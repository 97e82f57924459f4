"""`python -m tests.fuzz`: many programs, with progress, the differences found and totals."""

import argparse
import os
import sys
import time
from pathlib import Path

import torch

from .oracle import DifferenceError, Totals
from .program import Program
from .search import search

# Programs of one Hypothesis run; a difference ends it.
CHUNK = 100


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=20000, help="how many programs (default 20000)")
    parser.add_argument("--seed", type=int, default=0, help="programs of another seed are others (default 0)")
    parser.add_argument(
        "--compile-share", type=float, default=0.05, help="share of programs that are also compiled functions (default 0.05)"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument(
        "--build", type=Path, default=Path("build"), help="folder for the running program and what was found (default build)"
    )
    return parser.parse_args()


def report(totals: Totals, found: list[DifferenceError], started: float) -> str:
    """One line about what was done."""
    seconds = time.monotonic() - started
    return (
        f"{totals.eager} eager and {totals.compiled} compiled programs, {totals.steps} steps, {seconds:.0f} s; "
        f"{totals.raising} steps raise alike; compiled: {totals.torch_own} differ alike in aot_eager, "
        f"{totals.not_compared} raise in eager mode; {len(found)} differences"
    )


def main() -> int:
    """Run; the exit code says whether there was a difference."""
    options = arguments()
    folder: Path = options.build / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    running = folder / f"running-{os.getpid()}.py"  # what to look at if the process dies
    torch.set_num_threads(1)
    torch._logging.set_logs(all=50)
    totals, found, started, chunk = Totals(), [], time.monotonic(), 0

    def write(program: Program) -> None:
        running.write_text(program.snippet(range(len(program.steps))))

    while totals.eager + totals.compiled < options.programs and time.monotonic() - started < 60 * options.minutes:
        size = min(CHUNK, options.programs - totals.eager - totals.compiled)
        parts = ((False, size - round(size * options.compile_share)), (True, round(size * options.compile_share)))
        for compiled, count in parts:
            if count:
                error = search(count, options.seed * 1_000_000 + chunk, compiled=compiled, totals=totals, before=write)
                if error is not None:
                    found.append(error)
                    print(error, flush=True)
                    (folder / f"difference-{options.seed}-{chunk}-{'compiled' if compiled else 'eager'}.py").write_text(str(error))
        chunk += 1
        print(report(totals, found, started), flush=True)
    running.unlink(missing_ok=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
