"""Command line of the operator generator, run by CMake.

    python tools/opgen/generate.py --table src/torch/ops/table.yaml --output <dir> [--shards N] [--docs docs/operators.md] [--digest FILE]

Files are written only when their content changes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from opgen.emit import output_names, render, write_if_changed
from opgen.errors import OpgenError


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Generate operator registrations for the neuron device.")
    parser.add_argument("--table", type=Path, required=True, help="src/torch/ops/table.yaml")
    parser.add_argument("--output", type=Path, help="folder for the C++ files")
    parser.add_argument("--shards", type=int, default=8, help="number of ops_<shard>.cpp files (default 8)")
    parser.add_argument("--docs", type=Path, help="also write the operator page")
    parser.add_argument("--digest", type=Path, help="also write the list 'operator strategy' that the drift test compares")
    parser.add_argument("--list-outputs", action="store_true", help="print the C++ files that --output would get and stop")
    parser.add_argument("--list-inputs", action="store_true", help="print every file the result depends on and stop")
    arguments = parser.parse_args(argv)
    if arguments.shards < 1:
        parser.error(f"--shards must be at least 1, not {arguments.shards}")
    if arguments.list_outputs and not arguments.output:
        parser.error("--list-outputs needs --output")
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run the generator; returns the exit status."""
    arguments = _arguments(argv)
    if arguments.list_outputs:
        print("\n".join(str(arguments.output / name) for name in output_names(arguments.shards)))
        return 0
    # Only now: reading the wheel's catalog takes a second or two.
    from opgen.catalog import Wheel, load_catalog
    from opgen.docs import read_verified, render_digest, render_docs
    from opgen.strategy import make_plan
    from opgen.table import load_table

    try:
        wheel = Wheel.locate()
        if arguments.list_inputs:
            sources = sorted(Path(__file__).resolve().parent.rglob("*.py"))
            print("\n".join(str(path) for path in [arguments.table, *sources, wheel.native_functions, wheel.tags, wheel.version_file]))
            return 0
        catalog = load_catalog(wheel)
        table = load_table(arguments.table, catalog)
        plan = make_plan(catalog, table, wheel.include)
    except OpgenError as error:
        print(f"opgen: {error}", file=sys.stderr)
        return 1
    if arguments.output:
        files = render(plan, arguments.shards)
        for name, text in files.items():
            write_if_changed(arguments.output / name, text)
        for stale in set(arguments.output.glob("ops_*.cpp")) - {arguments.output / name for name in files}:
            stale.unlink()
    if arguments.docs:
        write_if_changed(
            arguments.docs, render_docs(plan, table, wheel.torch_version, read_verified(Path(__file__).with_name("verified.txt")))
        )
    if arguments.digest:
        write_if_changed(arguments.digest, render_digest(plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
