"""Set-up shared by the Hugging Face tests.

The suite runs offline against the device `neuron` and *fails* where that device is missing: it never skips itself away.

`SOFTNEURON_TEST_DEVICE=cpu` checks the tests themselves: everything is compared with the CPU device as if that were `neuron`, so each
comparison must hold. Tests that look into the device (its memory, its compiler, its environment variables) carry the marker
`neuron_only` and are skipped in that mode, and only there.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

# Before any Hugging Face import: these are read at import time.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# For subprocesses; see `_one_thread`.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
import transformers
from accelerate.state import AcceleratorState, GradientState

from .helpers import TEST_DEVICE


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers of this folder."""
    config.addinivalue_line(
        "markers", "neuron_only: looks into the device itself; skipped only when SOFTNEURON_TEST_DEVICE names another device"
    )
    config.addinivalue_line("markers", "extra: needs a large optional package (run with -m extra)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips `neuron_only` tests when the suite checks itself on another device; leaves out `extra` unless it is asked for by -m."""
    not_here = pytest.mark.skip(reason=f"SOFTNEURON_TEST_DEVICE={TEST_DEVICE}: this test looks into the device neuron")
    not_asked = pytest.mark.skip(reason="optional extra with a 250 MB package: run with -m extra")
    for item in items:
        if TEST_DEVICE != "neuron" and "neuron_only" in item.keywords:
            item.add_marker(not_here)
        if "extra" in item.keywords and "extra" not in (config.option.markexpr or ""):
            item.add_marker(not_asked)


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """One thread: tiny tensors gain nothing from two, and on a busy machine two spin against each other (20 times slower, seen)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _device_present() -> None:
    """Fails the test where the device under test is missing."""
    if TEST_DEVICE == "neuron" and not (hasattr(torch, "neuron") and torch.neuron.is_available()):
        pytest.fail("torch.neuron is not available: install the package (see README) before running tests/hf", pytrace=False)


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Gives every test the same random numbers and no accelerate state of an earlier test (accelerate keeps singletons)."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    transformers.set_seed(0)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if TEST_DEVICE == "neuron" and hasattr(torch, "neuron"):
        torch.neuron.set_device(0)


@pytest.fixture
def device() -> str:
    """Name of the device under test, without an index, as a user would write it."""
    return TEST_DEVICE


@pytest.fixture
def indexed_device() -> torch.device:
    """What tensors on the device under test report: `neuron:0`."""
    return torch.device("neuron", 0) if TEST_DEVICE == "neuron" else torch.device(TEST_DEVICE)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Forgets all compiled graphs and zeroes the counters, before and after the test."""
    _reset_compiler()
    yield
    _reset_compiler()


def _reset_compiler() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.neuron.reset_dynamo_metrics()


@pytest.fixture
def nothing_lost() -> Iterator[None]:
    """Checks after the test that the device still computes and that core 0 holds no more memory than before."""
    before = _held()
    yield
    assert torch.equal((torch.arange(6, device="neuron") * 2).cpu(), torch.arange(0, 12, 2))
    assert _held() <= before, "memory of the failed attempt is still held"


def _held() -> int:
    gc.collect()
    return int(torch.neuron.memory_allocated())
