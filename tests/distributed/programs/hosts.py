"""What ranks on several hosts do."""

import ctypes
import os
import time

import torch
import torch.distributed as dist

from tests.distributed.programs import frameworks
from tests.distributed.programs.joining import join


def enter_namespace() -> None:
    """Move this thread, and those that it starts, into the network namespace that the test made."""
    path = os.environ.get("TEST_NETWORK_NAMESPACE")
    if path:
        with open(path) as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000) != 0:
                raise OSError(ctypes.get_errno(), "setns")


def differs(rank: int) -> str:
    join(20)
    try:
        dist.all_reduce(torch.ones(7 if rank < 2 else 8, device="neuron"))
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def sums_and_fsdp(rank: int) -> tuple[float, list[float], list[float]]:
    enter_namespace()
    join(60)
    tensor = torch.full((100_000,), rank + 1.0, device="neuron")
    dist.all_reduce(tensor)
    result = frameworks.compare(frameworks._shard(frameworks.make_model()), frameworks.my_share())
    return tensor.mean().item(), result.losses, result.expected


def until_cut(rank: int, ready: str, timeout: float) -> tuple[str, float]:
    enter_namespace()
    join(timeout)
    tensor = torch.ones(1000, device="neuron")
    dist.all_reduce(tensor)
    with open(f"{ready}{rank}", "w"):
        pass
    begin = time.monotonic()
    while True:
        begin = time.monotonic()
        try:
            dist.all_reduce(tensor, dist.ReduceOp.MAX)
        except dist.DistBackendError as error:
            return str(error), time.monotonic() - begin
