"""Every collective on every dtype, and random programs of collectives, against references made by one process."""

import pytest

from tests.distributed.launch import run_ranks, values
from tests.distributed.programs import collectives


def no_faults(outcomes):
    for rank, faults in enumerate(values(outcomes)):
        assert not faults, f"rank {rank}: {len(faults)} faults, the first: {faults[:5]}"


@pytest.mark.parametrize("size", [1, 2, pytest.param(3, marks=pytest.mark.extra), 4])
def test_reductions(size):
    no_faults(run_ranks(collectives.reductions, size, timeout=240))


@pytest.mark.parametrize("size", [1, 2, pytest.param(3, marks=pytest.mark.extra), 4])
def test_movements(size):
    no_faults(run_ranks(collectives.movements, size, timeout=240))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_lists_splits_and_layouts(size):
    no_faults(run_ranks(collectives.uneven, size, timeout=120))


@pytest.mark.parametrize(("size", "count"), [(2, 20), (4, 10), *(pytest.param(n, 50, marks=pytest.mark.extra) for n in (3, 5, 6, 8))])
def test_random_schedules(size, count):
    no_faults(run_ranks(collectives.random_schedules, size, 1000 * size, count, timeout=300))


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.extra), 4])
def test_large_tensors(size):
    no_faults(run_ranks(collectives.large, size, timeout=240))


def test_shared_memory_and_forks():
    no_faults(run_ranks(collectives.shared_memory_and_forks, 2, timeout=60))


def test_rings_instead_of_shared_memory():
    outcomes = run_ranks(collectives.large, 2, timeout=240, env={"TORCH_NEURONX_SHARE_MEMORY": "0"})
    for faults in values(outcomes):
        assert faults and all("of 9 collectives without copies" in fault for fault in faults), faults[:5]


@pytest.mark.parametrize(("size", "elements"), [(8, 300_000), pytest.param(32, 100_000, marks=pytest.mark.extra)])
def test_more_ranks_than_cores(size, elements):
    no_faults(run_ranks(collectives.many_ranks, size, elements, timeout=240))
