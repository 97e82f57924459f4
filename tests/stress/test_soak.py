"""The soak: a mixed load whose memory must stay flat. Ten seconds in `make test`; SOFTNEURON_SOAK_MINUTES (30) minutes in `make stress`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from .helpers import TESTS, environment

MINUTES = float(os.environ.get("SOFTNEURON_SOAK_MINUTES", "30"))

# Dynamo itself keeps memory of every graph that it ever compiled, also on the CPU; a round compiles 0.4 graphs forward and backward.
DYNAMO_MIB_PER_ROUND = 0.03


def soak(minutes: float, warm_up: int) -> dict[str, Any]:
    """Runs tests/stress/soak.py in a new interpreter; returns its figures."""
    command = [sys.executable, str(TESTS / "stress" / "soak.py"), "--minutes", str(minutes), "--warm-up", str(warm_up)]
    finished = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=minutes * 60 + 1200, check=False, stdin=subprocess.DEVNULL
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def assert_flat(figures: dict[str, Any], slack_mib: float) -> None:
    """The device holds the same bytes after every round; nothing is left open; resident memory grows no faster than Dynamo's own."""
    assert figures["device_bytes_deviation"] == 0
    assert figures["device_bytes_after"] == figures["device_bytes_before"]
    assert figures["open_files"][0] == figures["open_files"][1]
    assert figures["threads"][0] == figures["threads"][1]
    assert figures["growth_mib"] < slack_mib + DYNAMO_MIB_PER_ROUND * figures["rounds"], figures


def test_short_soak() -> None:
    assert_flat(soak(minutes=0.1, warm_up=4), slack_mib=12)


@pytest.mark.extra
@pytest.mark.timeout(MINUTES * 60 + 1500)
def test_long_soak() -> None:
    figures = soak(MINUTES, warm_up=60)
    print(json.dumps(figures))
    assert_flat(figures, slack_mib=4)
