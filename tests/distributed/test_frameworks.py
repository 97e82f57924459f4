"""torch's own parallelism on the backend "neuron": 20 float32 training steps equal those of one process."""

import math

import pytest

from tests.distributed.launch import run_ranks, values
from tests.distributed.programs import frameworks

extra = pytest.mark.extra


def check(outcomes, tolerance=1e-5):
    results = values(outcomes)
    for rank, result in enumerate(results):
        assert len(result.losses) == frameworks.STEPS
        assert result.losses == results[0].losses, f"rank {rank} saw other losses than rank 0"
        for step, (actual, expected) in enumerate(zip(result.losses, result.expected, strict=True)):
            assert math.isclose(actual, expected, rel_tol=tolerance), f"step {step}: {actual}, one process has {expected}"
        assert result.parameters < 10 * tolerance, f"parameters differ by {result.parameters}"
    assert results[0].expected[-1] < results[0].expected[0], "the twin did not learn"
    return results


@pytest.mark.parametrize("compiled", [False, True])
def test_ddp(compiled):
    outcomes = run_ranks(frameworks.ddp, 2, compiled, timeout=200)
    results = check(outcomes)
    assert not any("Time stats" in outcome.output for outcome in outcomes), "DDP finds no clock for the device"
    assert compiled or results[0].notes["backward_nanoseconds"] > 0
    assert compiled or results[0].notes["buckets"] > 1, "the model must not fit into one bucket, or nothing overlaps"


@pytest.mark.parametrize(("size", "compiled", "reshard"), [(2, False, True), (2, True, True), (4, False, False)])
def test_fsdp2(size, compiled, reshard):
    check(run_ranks(frameworks.fsdp, size, compiled, reshard, timeout=200))


ALSO_COMPILED = pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=extra)])


@ALSO_COMPILED
def test_hsdp(compiled):
    check(run_ranks(frameworks.hsdp, 4, compiled, timeout=300))


def test_fsdp2_with_offload():
    check(run_ranks(frameworks.fsdp_offload, 2, timeout=200))


def test_fsdp2_mixed_precision():
    check(run_ranks(frameworks.fsdp_mixed, 2, timeout=200), tolerance=2e-2)


def test_fsdp2_states_load_on_another_world_size(tmp_path):
    written = values(run_ranks(frameworks.fsdp_states, 4, str(tmp_path), timeout=200))
    read = values(run_ranks(frameworks.fsdp_load, 2, str(tmp_path), timeout=200))
    alone = values(run_ranks(frameworks.fsdp_load, 1, str(tmp_path), timeout=200))
    assert written[0] == pytest.approx(read[1], rel=1e-12)
    assert written[0] == pytest.approx(alone[0], rel=1e-12)


@pytest.mark.parametrize(("size", "compiled"), [(2, False), (4, False), (2, True)])
def test_tensor_parallel(size, compiled):
    check(run_ranks(frameworks.tensor_parallel, size, compiled, timeout=240))


@ALSO_COMPILED
def test_sequence_parallel(compiled):
    check(run_ranks(frameworks.sequence_parallel, 2, compiled, timeout=240))


@ALSO_COMPILED
def test_loss_parallel(compiled):
    check(run_ranks(frameworks.loss_in_parallel, 2, compiled, timeout=240))


WITH_AOT = pytest.mark.xfail(strict=True, reason='AOTAutograd: backend="aot_eager" gives the same wrong losses')


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=[extra, WITH_AOT])])
def test_tensor_parallel_with_fsdp2(compiled):
    check(run_ranks(frameworks.tensor_parallel_fsdp, 4, compiled, timeout=300))


@pytest.mark.parametrize(
    ("size", "schedule", "compiled"),
    [
        (2, "ScheduleGPipe", False),
        (2, "Schedule1F1B", False),
        (4, "Schedule1F1B", False),
        pytest.param(2, "ScheduleGPipe", True, marks=extra),
    ],
)
def test_pipeline(size, schedule, compiled):
    check(run_ranks(frameworks.pipeline, size, schedule, compiled, timeout=240))


def test_interleaved_pipeline():
    check(run_ranks(frameworks.two_stages_per_rank, 2, timeout=240))


def test_collectives_in_compiled_graphs():
    for faults in values(run_ranks(frameworks.functional_in_graph, 2, timeout=200)):
        assert not faults


def test_context_parallel_is_refused_by_torch():
    """docs/limits.md: PyTorch's tables know the attention operators of CUDA only."""
    for message in values(run_ranks(frameworks.context_in_parallel, 2, timeout=200)):
        assert "does not have a sharding strategy registered" in message
