"""What autoload adds to `import torch`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from benchmarks.measure import Result

ROUNDS = 11


def import_seconds(autoload: str) -> float:
    """Processor time of a new interpreter up to `import torch` done, with or without the device package, so other load does not count."""
    code = "import time, torch; print(time.process_time())"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    return float(subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True).stdout)


def run() -> Iterator[Result]:
    """At most 50 ms."""
    pairs = [(import_seconds("0"), import_seconds("1")) for _ in range(ROUNDS)]
    added = median(b - a for a, b in pairs) * 1e3
    yield Result("autoload adds to `import torch`", added, "ms", 50, detail=f"{median(a for a, _ in pairs) * 1e3:.0f} ms without")
