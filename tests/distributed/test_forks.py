"""Ranks that fork: DataLoader workers, children that exit, children that touch what is not theirs."""

import pytest

from tests.distributed.launch import run_ranks, torchrun, values
from tests.distributed.programs import forks


def no_faults(outcomes):
    for rank, faults in enumerate(values(outcomes)):
        assert not faults, f"rank {rank}: {faults}"


def test_children_leave():
    no_faults(run_ranks(forks.children_leave, 2, timeout=240))


def test_bytes_of_a_child():
    no_faults(run_ranks(forks.bytes_of_a_child, 2, timeout=240))


def test_training_with_workers():
    no_faults(run_ranks(forks.trains_with_workers, 2, timeout=240))


def test_a_rank_that_dies_before_its_child():
    outcomes = run_ranks(forks.dies_with_a_living_child, 2, 1, timeout=240)
    assert outcomes[1].exit_code == -9
    text = values(outcomes[:1])[0]
    assert "rank 1 has died" in text, text


SCRIPT = """
import os, sys, torch, torch.distributed as dist

dist.init_process_group("neuron")
tensor = torch.ones(3 << 20, device="neuron")
dist.all_reduce(tensor, async_op=True).wait()
child = os.fork()
if child == 0:
    sys.exit(0)  # an ordinary end: exit handlers, threads, objects
assert os.waitpid(child, 0)[1] == 0
dist.all_reduce(tensor)
assert tensor[-1].item() == dist.get_world_size() ** 2
print("went on", flush=True)
"""


@pytest.mark.parametrize("destroy", [True, False])
def test_a_child_that_exits_as_scripts_do(tmp_path, destroy):
    script = tmp_path / "forks.py"
    script.write_text(SCRIPT + ("dist.destroy_process_group()\n" if destroy else ""))
    result = torchrun(2, script, timeout=240)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("went on") == 2, result.stdout
