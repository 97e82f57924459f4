"""Set-up of the tests on several ranks: offline, one thread, and a failure where the device is missing."""

from __future__ import annotations

import os

# Before any Hugging Face import, and for the server that ranks are forked from.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch


@pytest.fixture(autouse=True)
def _device_present() -> None:
    """Fails the test where the device under test is missing; never skips."""
    if not (hasattr(torch, "neuron") and torch.neuron.is_available()):
        pytest.fail("torch.neuron is not available: install the package (see README) before running tests/distributed", pytrace=False)
