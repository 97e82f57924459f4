"""The soak: a mixed load whose memory must stay flat but for what compiling costs on the CPU too.

Ten seconds in `make test`; SOFTNEURON_SOAK_MINUTES (30) minutes in `make stress`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from .helpers import TESTS, environment

MINUTES = float(os.environ.get("SOFTNEURON_SOAK_MINUTES", "30"))

# What the CPU's growth is multiplied with: allocators are not exact.
TOLERANCE = 1.25


def soak(warm_up: int, *arguments: str) -> dict[str, Any]:
    """Runs tests/stress/soak.py in a new interpreter; returns its figures.

    The cache of programs, which keeps all of them by default, is limited, so that it evicts instead of growing.
    """
    command = [sys.executable, str(TESTS / "stress" / "soak.py"), "--warm-up", str(warm_up), *arguments]
    finished = subprocess.run(
        command,
        env=environment(NEURON_COMPILATION_CACHE_MAX_ENTRIES="8"),
        capture_output=True,
        text=True,
        timeout=MINUTES * 120 + 1200,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def soak_beside_cpu(warm_up: int, minutes: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The soak on the device, and as many rounds of its compiled functions on the CPU.

    Compiling makes a process grow, on the CPU too: Dynamo and AOTAutograd keep some 740 Python objects and 200 KiB of the eight graphs
    of a compiling round, also after `torch._dynamo.reset()`. Training and generation stay below 1 KiB a round on both.
    """
    figures = soak(warm_up, "--minutes", str(minutes))
    return figures, soak(warm_up, "--device", "cpu", "--kinds", "compile", "--rounds", str(figures["rounds"]))


def assert_flat(figures: dict[str, Any], cpu: dict[str, Any], slack_mib: float) -> None:
    """The device holds the same bytes after every round; nothing is left open; resident memory grows no faster than on the CPU."""
    assert figures["device_bytes_deviation"] == 0
    assert figures["device_bytes_after"] == figures["device_bytes_before"]
    assert figures["open_files"][0] == figures["open_files"][1]
    assert figures["threads"][0] == figures["threads"][1]
    assert figures["growth_mib"] < slack_mib + TOLERANCE * max(0.0, cpu["growth_mib"]), (figures, cpu)


def test_short_soak() -> None:
    figures, cpu = soak_beside_cpu(warm_up=4, minutes=0.1)
    assert_flat(figures, cpu, slack_mib=12)


@pytest.mark.extra
@pytest.mark.timeout(MINUTES * 120 + 1500)
def test_long_soak() -> None:
    figures, cpu = soak_beside_cpu(warm_up=60, minutes=MINUTES)
    print(json.dumps({"neuron": figures, "cpu": cpu}))
    assert_flat(figures, cpu, slack_mib=4)
