"""Groups, works, futures and messages of the backend "neuron"."""

import pytest

from tests.distributed.launch import run_ranks, values
from tests.distributed.programs import groups
from tests.distributed.test_collectives import no_faults


@pytest.mark.parametrize("how", ["nothing", "device", "neuron", "name and device", "cpu:gloo,neuron:neuron"])
def test_ways_to_start(how):
    no_faults(run_ranks(groups.starts, 2, how, timeout=120))


def test_subgroups():
    no_faults(run_ranks(groups.subgroups, 4, timeout=120))


@pytest.mark.parametrize("size", [2, 4])
def test_works_and_messages(size):
    no_faults(run_ranks(groups.works, size, timeout=120))


def test_sums_have_the_same_bits_on_every_rank_and_in_every_run():
    first, second = (values(run_ranks(groups.same_bits, 3, timeout=120)) for _ in range(2))
    assert first[0] == first[1] == first[2] == second[0]
