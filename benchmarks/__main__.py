"""Run the benchmarks: `python -m benchmarks [name ...]`. Prints one line per figure with its bar; exits 1 if a bar is missed."""

from __future__ import annotations

import argparse
import importlib
import sys

NAMES = ("startup", "operators", "transfer", "eager", "decode", "language", "encoders", "loading", "collectives", "soak")
OTHERS = ("peers",)  # only when named


def main() -> int:
    """Run the named benchmarks, all by default."""
    names = f"which to run, of: {', '.join(NAMES + OTHERS)} (default: all but {OTHERS[0]})"
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=names)
    chosen = parser.parse_args().names or NAMES
    unknown = sorted(set(chosen) - {*NAMES, *OTHERS})
    if unknown:
        parser.error(f"unknown benchmark: {', '.join(unknown)}")
    missed = []
    for name in chosen:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"== {name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        for result in module.run():
            print(result.line(), flush=True)
            if not result.passed:
                missed.append(result.name)
    print(f"\n{len(missed)} bar(s) missed" + (": " + ", ".join(missed) if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
