"""DataLoader workers beside the device: start methods, pinned memory, persistent workers, errors, death and exhaustion of workers."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

pytestmark = pytest.mark.usefixtures("nothing_lost")

METHODS = ["fork", pytest.param("spawn", marks=pytest.mark.extra), pytest.param("forkserver", marks=pytest.mark.extra)]


class Numbers(Dataset[dict[str, torch.Tensor]]):
    """Items of 1000 equal numbers; `at` calls `act` when the item with that index is asked for."""

    def __init__(self, count: int = 40, at: int = -1, act: Callable[[], Any] | None = None) -> None:
        self.count, self.at, self.act = count, at, act

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index == self.at and self.act is not None:
            self.act()
        return {"x": torch.full((1000,), float(index)), "index": torch.tensor(index)}


class Stream(IterableDataset[torch.Tensor]):
    """Each worker yields its share of the numbers below 32."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        return iter(torch.arange(info.id, 32, info.num_workers).float())


def raise_error() -> None:
    raise KeyError("a fault in a worker")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    sys.exit(3)


def use_device() -> None:
    torch.ones(2, device="neuron")


def return_from_device() -> None:
    torch.arange(3, device="neuron").sum().item()


def epoch(loader: DataLoader[Any], device: str = "neuron") -> tuple[int, float]:
    """Moves every batch to the device, computes there; returns how many rows came and the sum of all numbers."""
    rows, total = 0, 0.0
    for batch in loader:
        x = batch["x"].to(device, non_blocking=True)
        assert torch.equal(x[:, 0].cpu(), batch["index"].float())
        rows, total = rows + len(x), total + x.sum().item()
    return rows, total


@contextlib.contextmanager
def closing(loader: DataLoader[Any]) -> Iterator[DataLoader[Any]]:
    """Ends persistent workers also when the test fails."""
    try:
        yield loader
    finally:
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()


@pytest.mark.parametrize("method", METHODS)
def test_epochs(method: str) -> None:
    """Two epochs with pinned memory and persistent workers: all rows come, in the right place, twice."""
    loader = DataLoader(Numbers(), 8, num_workers=2, pin_memory=True, persistent_workers=True, multiprocessing_context=method)
    with closing(loader):
        for _ in range(2):
            assert epoch(loader) == (40, 1000.0 * sum(range(40)))


def test_pin_thread_pins_for_the_device() -> None:
    loader = DataLoader(Numbers(16), 4, num_workers=1, pin_memory=True, multiprocessing_context="fork")
    for batch in loader:
        assert all(tensor.is_pinned() for tensor in batch.values())


def test_pinned_batches_that_outlive_their_loader() -> None:
    loader = DataLoader(Numbers(24), 4, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    batches = list(loader)
    del loader
    assert [int(batch["x"][0, 0]) for batch in batches] == [0, 4, 8, 12, 16, 20]
    moved = [batch["x"].to("neuron", non_blocking=True) for batch in batches]
    del batches
    assert [int(x[1, 5].item()) for x in moved] == [1, 5, 9, 13, 17, 21]


def test_without_workers() -> None:
    assert epoch(DataLoader(Numbers(), 8, pin_memory=True)) == (40, 1000.0 * sum(range(40)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pin_memory", [False, True])
def test_exception_in_a_worker(method: str, pin_memory: bool) -> None:
    """The user gets the worker's error; the next epoch, without the fault, is complete."""
    dataset = Numbers(at=17, act=raise_error)
    with pytest.raises(KeyError, match="a fault in a worker"):
        epoch(DataLoader(dataset, 8, num_workers=2, pin_memory=pin_memory, multiprocessing_context=method))
    assert epoch(DataLoader(Numbers(16), 8, num_workers=2, pin_memory=pin_memory, multiprocessing_context="fork"))[0] == 16


# The pin thread fails, as on a machine with another device, when the worker dies before its batch was fetched.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("act", [die, leave])
def test_worker_that_dies(act: Callable[[], None]) -> None:
    """torch notices a worker that was killed or left (one of three ways, whichever is first); the device goes on."""
    with pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly"):
        epoch(DataLoader(Numbers(at=17, act=act), 8, num_workers=2, pin_memory=True, multiprocessing_context="fork"))
    assert (torch.ones(3, device="neuron") + 1).tolist() == [2.0] * 3


def test_device_in_a_forked_worker_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'spawn' start method"):
        epoch(DataLoader(Numbers(at=3, act=use_device), 8, num_workers=1, multiprocessing_context="fork"))


@pytest.mark.extra
def test_device_in_a_spawned_worker_works() -> None:
    dataset = Numbers(16, at=3, act=return_from_device)
    assert epoch(DataLoader(dataset, 8, num_workers=2, multiprocessing_context="spawn"))[0] == 16


def test_loop_left_early() -> None:
    """Leaving a loop with batches under way loses nothing."""
    for _ in range(4):
        loader = DataLoader(Numbers(), 2, num_workers=2, pin_memory=True, prefetch_factor=4, multiprocessing_context="fork")
        for batch in loader:
            batch["x"].to("neuron", non_blocking=True)
            break


@pytest.mark.extra
def test_two_loaders_at_once_on_two_cores() -> None:
    first, second = (DataLoader(Numbers(), 8, num_workers=1, pin_memory=True, multiprocessing_context="fork") for _ in range(2))
    for left, right in zip(first, second, strict=True):
        assert torch.equal(left["x"].to("neuron:0").to("neuron:1"), right["x"].to("neuron:1"))


def test_iterable_dataset() -> None:
    loader = DataLoader(Stream(), 4, num_workers=2, pin_memory=True, multiprocessing_context="fork")
    assert torch.cat([batch.to("neuron") for batch in loader]).sort().values.tolist() == list(range(32))


@pytest.mark.extra
def test_timeout_of_a_slow_worker() -> None:
    dataset = Numbers(at=0, act=lambda: time.sleep(30))
    with pytest.raises(RuntimeError, match="timed out"):
        epoch(DataLoader(dataset, 8, num_workers=1, timeout=1, pin_memory=True, multiprocessing_context="fork"))


def test_batches_made_on_the_device_by_the_main_process() -> None:
    """A collate function may move batches itself when there are no workers; a device generator shuffles."""
    generator = torch.Generator("cpu").manual_seed(0)
    loader = DataLoader(
        Numbers(), 8, shuffle=True, generator=generator, collate_fn=lambda items: torch.stack([item["x"] for item in items]).to("neuron")
    )
    assert sum(batch.sum().item() for batch in loader) == 1000.0 * sum(range(40))
