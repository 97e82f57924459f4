"""Uses of collectives that nobody recommends: odd layouts, aliases, lifetimes, threads, sparse tensors, ranks that vanish."""

import pytest

from tests.distributed.launch import run_ranks, values
from tests.distributed.programs import unusual
from tests.distributed.test_collectives import no_faults


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.extra)])
@pytest.mark.parametrize("program", [unusual.layouts, unusual.aliases, unusual.lifetimes, unusual.groups_at_once, unusual.sparse])
def test_unusual(program, size):
    no_faults(run_ranks(program, size, timeout=240))


def test_memory_does_not_grow():
    no_faults(run_ranks(unusual.memory_stays, 2, timeout=240))


@pytest.mark.parametrize("size", [2, 3])
def test_ddp_with_sparse_gradients(size):
    no_faults(run_ranks(unusual.sparse_gradients, size, timeout=120))


def test_a_peer_that_leaves():
    outcomes = run_ranks(unusual.peer_leaves_while_read, 2, timeout=120)
    assert outcomes[1].exit_code == 0
    assert values(outcomes[:1]) == [[]]
