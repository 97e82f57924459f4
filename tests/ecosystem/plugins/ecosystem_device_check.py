"""pytest plugin: refuses a run that is for one device and happens on the other, which would compare a device with itself."""

from __future__ import annotations

import os

import pytest
import torch


def pytest_sessionstart() -> None:
    """The device is there exactly if the run is for it."""
    wanted = os.environ["ECOSYSTEM_DEVICE"]
    loaded = hasattr(torch, "neuron")
    if loaded != (wanted == "neuron"):
        raise pytest.UsageError(f"this run is for {wanted}, but torch.neuron is {'loaded' if loaded else 'missing'}")
