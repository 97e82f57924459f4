"""What ranks see when one of them fails. Each function returns (text of the error, seconds until it came)."""

import json
import os
import signal
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import torch_neuronx.distributed
from tests.distributed.programs.joining import join

Seen = tuple[str, float]


def start(timeout: float) -> torch.Tensor:
    join(timeout)
    tensor = torch.ones(3, 4, device="neuron")
    dist.all_reduce(tensor)  # everybody is there
    return tensor


def seen(function: Any) -> Seen:
    begin = time.monotonic()
    try:
        function()
    except RuntimeError as error:
        assert isinstance(error, dist.DistBackendError), repr(error)
        return str(error), time.monotonic() - begin
    return "no error", time.monotonic() - begin


def dies(rank: int, victim: int, how: str, timeout: float) -> Seen:
    tensor = start(timeout)
    if rank == victim:
        if how == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hang":
            time.sleep(3 * timeout)
            return "", 3 * timeout
        raise ValueError("this rank raises")
    result = seen(lambda: dist.all_reduce(tensor))
    again = seen(lambda: dist.all_reduce(tensor))
    assert again[0] != "no error", "a broken group must stay broken"
    assert again[1] < timeout / 2, "a broken group must fail at once"
    return result


def dies_in_asynchronous(rank: int, victim: int, timeout: float) -> dict[str, Any]:
    tensor = start(timeout)
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    text, seconds = seen(work.wait)
    future_text = ""
    try:
        future.wait()
    except Exception as error:
        future_text = str(error)
    return {
        "text": text,
        "seconds": seconds,
        "future": future_text,
        "completed": work.is_completed(),
        "success": work.is_success(),
        "exception": str(work.exception()),
    }


def dies_while_receiving(rank: int, victim: int, timeout: float) -> Seen:
    start(timeout)
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return seen(lambda: dist.recv(torch.empty(5, device="neuron"), victim))


def nobody_sends(rank: int, timeout: float) -> Seen:
    start(timeout)
    if rank == 1:
        time.sleep(3 * timeout)
        return "", 0.0
    return seen(lambda: dist.recv(torch.empty(5, device="neuron"), 1, tag=7))


def differs(rank: int, odd: int, kind: str, timeout: float) -> Seen:
    start(timeout)
    tensor = torch.ones(3, 4, device="neuron")

    def call() -> None:
        if rank != odd:
            dist.all_reduce(tensor)
        elif kind == "collective":
            dist.broadcast(tensor, 0)
        elif kind == "shape":
            dist.all_reduce(torch.ones(3, 5, device="neuron"))
        elif kind == "dtype":
            dist.all_reduce(tensor.to(torch.bfloat16))
        elif kind == "reduction":
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        else:
            raise AssertionError(kind)

    return seen(call)


def missing_rank(rank: int, timeout: float) -> Seen:
    """Rank 1 never makes its first call."""
    join(timeout)
    if rank == 1:
        time.sleep(3 * timeout)
        return "", 0.0
    return seen(lambda: dist.all_reduce(torch.ones(2, device="neuron")))


def aborted(rank: int, timeout: float) -> Seen:
    start(timeout)
    if rank == 1:
        time.sleep(1)
        dist.group.WORLD._get_backend(torch.device("neuron")).abort()
        return "", 0.0
    return seen(lambda: dist.all_reduce(torch.ones(2, device="neuron")))


def store_is_gone(rank: int, timeout: float) -> Seen:
    """The rank that keeps the store ends; another one makes a group."""
    start(timeout)
    if rank == 0:
        os._exit(0)
    time.sleep(1)
    begin = time.monotonic()
    try:
        dist.new_group([1], use_local_synchronization=True)
    except RuntimeError as error:
        return str(error), time.monotonic() - begin
    return "no error", time.monotonic() - begin


def group_of_a_store_that_ended(rank: int, timeout: float) -> Seen:
    """A group is made of a store whose keeper has ended meanwhile."""
    start(timeout)
    keeper = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store = dist.TCPStore("127.0.0.1", keeper.port, is_master=False, timeout=timedelta(seconds=1))
    del keeper
    kind = torch_neuronx._C.ProcessGroupNeuron
    begin = time.monotonic()
    try:
        kind(store, 0, 2, kind.Options())
    except dist.DistBackendError as error:
        return str(error), time.monotonic() - begin
    return "no error", time.monotonic() - begin


def recorded(rank: int, victim: int, prefix: str) -> dict[str, Any]:
    os.environ["TORCH_NEURONX_FLIGHT_RECORDER_DUMP"] = prefix
    tensor = start(60)
    dist.broadcast(tensor, 0)
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    seen(lambda: dist.all_gather_into_tensor(torch.empty(6, 4, device="neuron"), tensor))
    with open(f"{prefix}_rank{rank}.json") as file:
        written = json.load(file)
    assert [e["operation"] for e in torch_neuronx.distributed.flight_record()["entries"]] == [e["operation"] for e in written["entries"]]
    return written


def sums_forever(rank: int, ready: str) -> None:
    tensor = start(30)
    with open(f"{ready}{rank}", "w"):
        pass
    while True:
        dist.all_reduce(tensor, dist.ReduceOp.MAX)


def works(rank: int, base: float) -> float:
    join(30)
    total = 0.0
    for _ in range(50):
        tensor = torch.full((1000,), base + rank, device="neuron")
        dist.all_reduce(tensor)
        total = tensor[0].item()
    return total
