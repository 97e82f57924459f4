"""Shared fixtures of the Python tests."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
import torch

# Variables that decide what a process sees of the device; a test's subprocess gets only those that the test names.
DEVICE_VARIABLES = ("NEURON_", "SOFTNEURON_", "TORCH_NEURONX_", "TORCH_DEVICE_BACKEND_AUTOLOAD")

RunPython = Callable[..., subprocess.CompletedProcess[str]]


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(torch, "neuron") or not torch.neuron.is_available():
        pytest.exit("the device `neuron` is not available in this environment: build and install torch-neuronx first", returncode=3)


@pytest.fixture(autouse=True)
def first_device_is_current() -> Iterator[None]:
    """Start every test on core 0, whatever the one before selected."""
    torch.neuron.set_device(0)
    yield
    torch.neuron.set_device(0)


@pytest.fixture(scope="session")
def run_python() -> RunPython:
    """Run code in a new interpreter: `run_python(code, env={...}, cwd=..., check=True)` gives the completed process."""

    def run(
        code: str, *, env: dict[str, str] | None = None, cwd: str | os.PathLike[str] | None = None, check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(DEVICE_VARIABLES)}
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=inherited | {"TORCH_NEURONX_NEFF_CACHE_DIR": os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"]} | (env or {}),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check:
            assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    return run
