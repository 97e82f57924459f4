"""A rank that fails: the others end soon, with an error that says what happened, and nothing stays behind."""

import threading
import time
from pathlib import Path

import pytest

from tests.distributed.launch import ROOT, report, run_ranks, torchrun, values
from tests.distributed.programs import faults

SHARED = Path("/dev/shm")
# Seconds: a timeout of groups that nothing comes near when an error spreads by itself (half of it is the bound), and the end of a test,
# which covers the start of its ranks. Generous, for machines that do something else meanwhile.
SOON = 60.0
LIMIT = 150


def ours():
    return {entry.name for entry in SHARED.iterdir() if entry.name.startswith("softneuron-")}


@pytest.fixture(autouse=True)
def nothing_stays():
    before = ours()
    yield
    # A job of somebody else may be meeting: its segment is gone in a moment.
    deadline = time.monotonic() + 5
    while (left := ours() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, f"left in /dev/shm: {left}"


def survivors(outcomes, victim):
    rest = [outcome for rank, outcome in enumerate(outcomes) if rank != victim]
    return values(rest)


@pytest.mark.parametrize("how", ["SIGKILL", "raise"])
def test_a_rank_that_dies(how):
    outcomes = run_ranks(faults.dies, 3, 1, how, SOON, timeout=LIMIT)
    assert not outcomes[1].ok
    for text, seconds in survivors(outcomes, 1):
        assert seconds < SOON / 2
        assert "all_reduce" in text and "sequence number 2" in text and "[3, 4]" in text, text
        assert "rank 1" in text, text


def test_a_rank_that_hangs():
    outcomes = run_ranks(faults.dies, 3, 1, "hang", 4.0, timeout=LIMIT)
    (_, hung), *_ = values(outcomes[1:2])
    for text, seconds in survivors(outcomes, 1):
        assert 3.5 < seconds < hung
        assert "all_reduce" in text and "sequence number 2" in text and "rank 1" in text and "[3, 4]" in text, text


def test_a_rank_that_never_comes():
    text, seconds = values(run_ranks(faults.missing_rank, 2, 4.0, timeout=LIMIT))[0]
    assert 3.5 < seconds < 3 * 4.0
    assert "rank 1" in text, text


def test_asynchronous_works_and_futures_see_the_error():
    for seen in survivors(run_ranks(faults.dies_in_asynchronous, 2, 1, SOON, timeout=LIMIT), 1):
        assert seen["seconds"] < SOON / 2
        assert "rank 1" in seen["text"]
        assert "rank 1" in seen["future"] and "rank 1" in seen["exception"]
        assert seen["completed"] and not seen["success"]


def test_receiving_from_a_dead_rank():
    for text, seconds in survivors(run_ranks(faults.dies_while_receiving, 2, 1, SOON, timeout=LIMIT), 1):
        assert seconds < SOON / 2
        assert "recv from rank 1" in text and "[5]" in text, text


def test_receiving_what_nobody_sends():
    text, seconds = values(run_ranks(faults.nobody_sends, 2, 4.0, timeout=LIMIT))[0]
    assert 3.5 < seconds < 3 * 4.0
    assert "recv from rank 1 with tag 7" in text, text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("collective", ["all_reduce", "broadcast"]),
        ("shape", ["[3, 4]", "[3, 5]"]),
        ("dtype", ["float32", "bfloat16"]),
        ("reduction", ["sum", "max"]),
    ],
)
def test_ranks_that_call_different_things(kind, words):
    for text, seconds in values(run_ranks(faults.differs, 3, 2, kind, SOON, timeout=LIMIT)):
        assert seconds < SOON / 2
        for word in [*words, "rank 2", "sequence number 2"]:
            assert word in text, text


def test_abort_reaches_the_other_ranks():
    text, seconds = values(run_ranks(faults.aborted, 2, SOON, timeout=LIMIT))[0]
    assert seconds < SOON / 2
    assert "abort" in text, text


def test_a_group_made_without_the_store():
    text, seconds = values(run_ranks(faults.store_is_gone, 2, SOON, timeout=LIMIT)[1:])[0]
    assert seconds < SOON / 2
    assert text != "no error"


def test_a_group_of_a_store_that_ended():
    text, seconds = values(run_ranks(faults.group_of_a_store_that_ended, 1, SOON, timeout=LIMIT))[0]
    assert seconds < SOON / 2
    assert "the rank that keeps the store has left" in text


def test_flight_record(tmp_path):
    for record in survivors(run_ranks(faults.recorded, 2, 1, str(tmp_path / "flight"), timeout=LIMIT), 1):
        entries = record["entries"]
        assert [entry["operation"] for entry in entries] == ["all_reduce", "broadcast", "all_gather_into_tensor"]
        assert [entry["state"] for entry in entries] == ["completed", "completed", "failed"]
        assert [entry["sequence"] for entry in entries] == [1, 2, 3]
        assert entries[2]["inputs"] == [{"dtype": "Float", "sizes": [3, 4]}]


def test_a_killed_job_does_not_disturb_the_next(tmp_path):
    ready = str(tmp_path / "ready")

    def under_way():
        return all(Path(f"{ready}{rank}").exists() for rank in range(4))

    outcomes = run_ranks(faults.sums_forever, 4, ready, timeout=LIMIT, until=under_way)
    assert all(outcome.exit_code is None for outcome in outcomes), report(outcomes)
    assert under_way()
    assert values(run_ranks(faults.works, 4, 1.0, timeout=LIMIT)) == [10.0] * 4


def test_two_jobs_at_once():
    results = {}

    def job(base):
        results[base] = values(run_ranks(faults.works, 2, base, timeout=LIMIT))

    threads = [threading.Thread(target=job, args=(base,)) for base in (1.0, 100.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {1.0: [3.0] * 2, 100.0: [201.0] * 2}


RESTARTED = """
import os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("neuron", timeout=timedelta(seconds=600))
tensor = torch.ones(1000, device="neuron")
dist.all_reduce(tensor)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0 and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(tensor)
print(f"attempt {attempt} rank {dist.get_rank()} has {tensor[0].item()}", flush=True)
dist.destroy_process_group()
"""


def test_torchrun_restarts(tmp_path):
    script = tmp_path / "restarted.py"
    script.write_text(RESTARTED)
    done = torchrun(2, script, options=["--max-restarts=1"], timeout=240, env={"PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 0, done.stdout
    assert all(f"attempt 1 rank {rank} has 4.0" in done.stdout for rank in range(2)), done.stdout
