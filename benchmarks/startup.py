"""What autoload adds to `import torch`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from benchmarks.measure import Result

ROUNDS = 11


def import_seconds(autoload: str) -> float:
    """Processor time of a new interpreter that imports torch, with or without the device package: other load does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import torch"], check=True, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run() -> Iterator[Result]:
    """At most 50 ms."""
    pairs = [(import_seconds("0"), import_seconds("1")) for _ in range(ROUNDS)]
    added = median(b - a for a, b in pairs) * 1e3
    yield Result("autoload adds to `import torch`", added, "ms", 50, detail=f"{median(a for a, _ in pairs) * 1e3:.0f} ms without")
