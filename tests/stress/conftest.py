"""Set-up of the stress tests: the device must be there, every test must give back what it took."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
import torch


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(torch, "neuron") or not torch.neuron.is_available():
        pytest.exit("the device `neuron` is not available in this environment: build and install torch-neuronx first", returncode=3)


@pytest.fixture(autouse=True)
def one_thread_for_operators() -> Iterator[None]:
    """Tests make their own threads; those of the operators would only compete with them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.neuron.set_device(0)
    yield
    torch.neuron.set_device(0)
    torch.set_num_threads(threads)


@pytest.fixture
def nothing_lost() -> Iterator[None]:
    """Checks after the test that all cores compute and hold exactly what they held before, and that their books balance."""
    from .helpers import assert_books_balance, device_works, held

    before = held()
    yield
    assert device_works()
    # The threads of a loader that ended in the middle may hold a batch for a moment.
    deadline = time.monotonic() + 10
    while held() != before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.1)
    assert held() == before, "a core holds other memory than before the test"
    assert_books_balance()
