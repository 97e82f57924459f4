"""The device that this run of a foreign test suite uses; prepared test sources ask here instead of the library's own list of devices."""

from __future__ import annotations

import os


def run_device() -> str:
    """Name of the device of this run: `cpu` or `neuron`."""
    return os.environ["ECOSYSTEM_DEVICE"]
