"""Set-up of all Python tests."""

import os
import signal
import tempfile

import pytest

# Tests start with empty caches of compiled programs, and leave the user's alone.
_CACHES = tempfile.TemporaryDirectory(prefix="neuron-tests-")
os.environ.setdefault("TORCH_NEURONX_NEFF_CACHE_DIR", f"{_CACHES.name}/programs")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{_CACHES.name}/torch")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C work: a shell starts background jobs, and so perhaps this run and the processes it starts, with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
