"""Set-up of all Python tests."""

import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C work: a shell starts background jobs, and so perhaps this run and the processes it starts, with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
