"""Many threads that allocate, copy, compute, read figures and free at once: right values, exact books, no dead lock."""

from __future__ import annotations

import queue
import random
import threading
import time

import pytest
import torch

from .helpers import CORES, assert_books_balance, held, in_threads, succeeds

pytestmark = pytest.mark.usefixtures("nothing_lost")

SECONDS = 1.5
MIB = 1 << 20


def until(seconds: float = SECONDS):
    """Counts until the time is over."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield count
        count += 1


def check_pattern(tensor: torch.Tensor, value: int) -> None:
    """A block that two threads got would hold the other's pattern somewhere."""
    assert tensor.min().item() == value == tensor.max().item()


def allocate_and_free(index: int) -> None:
    """Keeps up to 20 tensors of 1 byte to 3 MiB, each filled with its own value, freed in random order."""
    rng, kept = random.Random(index), []
    for count in until():
        value = (index * 37 + count) % 251
        size = rng.choice([rng.randrange(1, 600), rng.randrange(1, 100_000), rng.randrange(1, 3 * MIB)])
        kept.append((torch.full((size,), value, dtype=torch.uint8, device=f"neuron:{rng.randrange(CORES)}"), value))
        if len(kept) > rng.randrange(1, 20):
            check_pattern(*kept.pop(rng.randrange(len(kept))))
    for entry in kept:
        check_pattern(*entry)


def copy_around(index: int) -> None:
    """Sends random bytes from the host over all cores and back."""
    rng = random.Random(index)
    for count in until():
        host = torch.randint(0, 255, (rng.randrange(1, 40_000),), dtype=torch.uint8)
        source = host.pin_memory() if count % 5 == 0 else host
        moving = source.to(f"neuron:{index % CORES}", non_blocking=True)
        for core in rng.sample(range(CORES), CORES):
            moving = moving.to(f"neuron:{core}", non_blocking=bool(count % 2))
        assert torch.equal(moving.cpu(), host)


def compute(index: int) -> None:
    """Products and reductions against the host."""
    generator = torch.Generator().manual_seed(index)
    x = torch.randn(48, 48, generator=generator)
    expected = (x @ x.T).relu().sum(0)
    for count in until():
        y = x.to(f"neuron:{(index + count) % CORES}")
        assert torch.equal((y @ y.T).relu_().sum(0).cpu(), expected)


def read_figures(_: int) -> None:
    """Figures are consistent whenever they are read."""
    for count in until():
        core = count % CORES
        stats = torch.neuron.memory_stats(core)
        assert stats["reserved_bytes.all.current"] >= stats["active_bytes.all.current"] >= stats["allocated_bytes.all.current"] >= 0
        for segment in torch.neuron.memory_snapshot(core):
            # See test_blocks_of_a_snapshot_fill_their_segments for the few bytes that may be missing.
            assert 0 <= segment["total_size"] - sum(block["size"] for block in segment["blocks"]) < 8192
        torch.neuron.memory_summary(core), torch.neuron.mem_get_info(core)


def empty_caches(_: int) -> None:
    """Gives free segments back again and again."""
    for _count in until():
        torch.neuron.empty_cache()
        torch.neuron.reset_peak_memory_stats()
        time.sleep(0.001)


def ask_for_too_much(index: int) -> None:
    """Runs out of memory all the time; the error must be that one."""
    for count in until():
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << (45 + count % 5), dtype=torch.uint8, device=f"neuron:{index % CORES}")


def draw_numbers(index: int) -> None:
    """Threads share the default generators: no number may be outside its range."""
    for count in until():
        x = torch.rand(1000 + count % 3000, device=f"neuron:{index % CORES}")
        assert 0 <= x.min().item() <= x.max().item() < 1


def test_everything_at_once() -> None:
    """Twelve threads of seven kinds on all cores."""
    kinds = [allocate_and_free] * 3 + [copy_around] * 3 + [compute] * 2 + [read_figures, empty_caches, ask_for_too_much, draw_numbers]
    in_threads(len(kinds), lambda index: kinds[index](index))


@pytest.mark.extra
@pytest.mark.parametrize("kind", [allocate_and_free, copy_around, compute, draw_numbers, ask_for_too_much])
def test_one_kind_in_many_threads(kind) -> None:
    in_threads(24, kind)


def test_tensors_freed_by_another_thread() -> None:
    """One thread allocates, another frees: the usual pattern of a prefetching loader."""
    handed: queue.Queue[tuple[torch.Tensor, int] | None] = queue.Queue(maxsize=16)

    def work(index: int) -> None:
        if index % 2:
            while (entry := handed.get()) is not None:
                check_pattern(*entry)
        else:
            for count in until():
                value = (index + count) % 251
                handed.put((torch.full((1 + count * 997 % 2_000_000,), value, dtype=torch.uint8, device=f"neuron:{index % CORES}"), value))
            handed.put(None)

    in_threads(8, work)
    assert handed.empty()


def test_one_tensor_grown_and_read_by_many() -> None:
    """Views, version counters and reference counts of one shared tensor from 8 threads."""
    shared = torch.arange(10_000, device="neuron:1")

    def work(index: int) -> None:
        for count in until(1.0):
            view = shared[count % 100 :: 1 + index]
            assert view.sum().item() == sum(range(count % 100, 10_000, 1 + index))
            del view

    in_threads(8, work)
    assert shared.untyped_storage().nbytes() == 80_000


def test_statistics_count_every_request() -> None:
    """The running totals after many threads are exactly the number of requests that they made."""
    size, threads, each = 1000, 8, 500

    def totals() -> dict[str, int]:
        stats = torch.neuron.memory_stats(2)
        names = (
            "allocation_requests",
            "num_tensor_frees",
            "requested_bytes.all.allocated",
            "requested_bytes.all.freed",
            "allocation.all.freed",
        )
        return {name: stats[name] for name in names}

    def work(_: int) -> None:
        for _count in range(each):
            torch.empty(size, dtype=torch.uint8, device="neuron:2")

    before = totals()
    in_threads(threads, work)
    requests = threads * each
    expected = dict(zip(before, [requests, requests, requests * size, requests * size, requests], strict=True))
    assert {name: after - before[name] for name, after in totals().items()} == expected


def test_current_device_is_each_threads_own() -> None:
    def work(index: int) -> None:
        core = index % CORES
        torch.neuron.set_device(core)
        for _ in until(0.5):
            assert torch.neuron.current_device() == core
            assert torch.ones(3, device="neuron").device.index == core
            with torch.neuron.device((core + 1) % CORES):
                assert torch.empty(1, device="neuron").device.index == (core + 1) % CORES

    in_threads(8, work)
    assert torch.neuron.current_device() == 0


def test_threads_that_die_with_tensors() -> None:
    """Thread-local state (alias pools, current device, streams) of threads that end is given back."""
    before = held()
    failed: list[str] = []

    def work(index: int) -> None:
        mine = torch.ones(1000, device=f"neuron:{index % CORES}")
        failed.append(str(mine.sum().item()))
        raise KeyError(index)

    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        for start in range(0, 200, 20):
            threads = [threading.Thread(target=work, args=(start + index,)) for index in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        threading.excepthook = hook
    assert failed == ["1000.0"] * 200
    del threads
    assert held() == before
    assert_books_balance()


def test_blocks_of_a_snapshot_fill_their_segments() -> None:
    """What PyTorch's memory visualizer insists on."""
    kept = [torch.empty(9 * MIB, dtype=torch.uint8, device="neuron:3") for _ in range(8)]
    segments = torch.neuron.memory_snapshot(3)
    del kept  # the traceback of a failure would keep them
    assert len(segments) > 1
    assert [sum(block["size"] for block in segment["blocks"]) for segment in segments] == [segment["total_size"] for segment in segments]


@pytest.mark.extra
def test_small_device_shared_by_threads() -> None:
    """Eight threads on 64 MiB: requests fail now and then, those that succeed hold their pattern, and all memory comes back."""
    out = succeeds(
        """
        import random, threading, time, torch
        from stress.helpers import assert_books_balance, in_threads
        failures = [0] * 8
        def work(index):
            rng, kept, end = random.Random(index), [], time.monotonic() + 4
            while time.monotonic() < end:
                try:
                    value = rng.randrange(250)
                    kept.append((torch.full((rng.randrange(1, 12 << 20),), value, dtype=torch.uint8, device="neuron"), value))
                except torch.OutOfMemoryError:
                    failures[index] += 1
                    kept = kept[len(kept) // 2 :]
                assert torch.neuron.memory_reserved() <= 64 << 20
                for tensor, value in kept[:1]:
                    assert tensor.min().item() == value == tensor.max().item()
        in_threads(8, work)
        assert_books_balance()
        stats = torch.neuron.memory_stats()
        assert stats["num_ooms"] == sum(failures) > 0
        torch.neuron.empty_cache()
        print(torch.neuron.memory_allocated(), torch.neuron.memory_reserved())
        """,
        SOFTNEURON_HBM_BYTES="64M",
    )
    assert out == "0 0"
