"""A rank that forks: what its children may do and how they end, and that the group goes on. Each function returns a list of faults."""

import atexit
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from tests.distributed.programs.joining import join
from torch_neuronx.distributed import flight_record

LARGE = 6 << 20  # elements of float32: 24 MiB, a segment of its own that other ranks can map
PATIENCE = 100


def with_threads() -> torch.Tensor:
    """Make the group, with its threads for works and messages running; return a tensor that other ranks have mapped."""
    join(PATIENCE)
    rank, size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((LARGE,), float(rank + 1), device="neuron")
    dist.all_reduce(tensor)
    received = torch.empty(5, device="neuron")
    works = [dist.all_reduce(torch.ones(3, device="neuron"), async_op=True), dist.irecv(received, (rank - 1) % size)]
    works.append(dist.isend(torch.ones(5, device="neuron"), (rank + 1) % size))
    for work in works:
        work.wait()
    return tensor


def ends(child: int) -> str:
    """Wait for a child; return how it ended, "0" where all was well. One that does not end is killed."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return str(os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "did not end"


def in_child(function: Callable[[], object]) -> str:
    """Run a function in a forked child and return how that ended: "0" for a result that is true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if function() else 3
        finally:
            sys.stdout.flush()
            os._exit(code)
    return ends(child)


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError as error:
        return "spawn" in str(error) or "forked" in str(error)
    return False


def leaves_like_a_script() -> bool:
    """What the end of an interpreter does: exit handlers, then objects."""
    atexit._run_exitfuncs()
    gc.collect()
    return True


def leaves_by_itself() -> bool:
    dist.destroy_process_group()
    return leaves_like_a_script()


def children_leave(rank: int) -> list[str]:
    tensor = with_threads()
    faults: list[str] = []
    group, others = dist.new_group(), dist.new_group()  # whose first operations are in the future
    # A work that other ranks have not joined yet: only rank 0 has it while it forks.
    pending = dist.all_reduce(torch.ones(3, device="neuron"), group=others, async_op=True) if rank == 0 else None
    uses: dict[str, Callable[[], object]] = {
        "leaves like a script": leaves_like_a_script,
        "destroys the groups": leaves_by_itself,
        "reads the record": lambda: len(flight_record()["entries"]) > 0,
        "reduces": lambda: refused(lambda: dist.all_reduce(tensor)),
        "reduces without waiting": lambda: refused(lambda: dist.all_reduce(tensor, async_op=True).wait()),
        "waits": lambda: refused(dist.barrier),
        "computes": lambda: refused(lambda: tensor.add_(1)),
        "copies to the host": lambda: refused(tensor.cpu),
        "makes a tensor": lambda: refused(lambda: torch.ones(LARGE, device="neuron")),
        "waits for a work of its parent": lambda: refused(pending.wait) if pending is not None else True,
        "works on the host": lambda: bool((torch.ones(1000) + 1).sum() == 2000),
    }
    for name, use in uses.items():
        if (how := in_child(use)) != "0":
            faults.append(f"a child that {name}: {how}")
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    if pending is None:
        dist.all_reduce(torch.ones(3, device="neuron"), group=others)
    else:
        pending.wait()
    size = dist.get_world_size()
    expected = float(size * (size + 1) // 2)
    if (tensor.cpu() != expected).any():
        faults.append(f"the tensor afterwards: {tensor[:3]} for {expected}")
    for when, some in (("before", group), ("after", dist.new_group())):
        flag = torch.ones(1, device="neuron")
        dist.all_reduce(flag, group=some)
        if flag.item() != size:
            faults.append(f"a group that was made {when} the forks")
    return faults


def bytes_of_a_child(rank: int) -> list[str]:
    """What a child writes stays its own; whether it sees what the parent writes is left open (docs/limits.md), but nothing breaks."""
    tensor = with_threads()
    address, before = tensor.data_ptr(), tensor[:4].cpu()
    ready, go = os.pipe()

    def write_and_wait() -> bool:
        ctypes.memset(address, 7, 4096)
        os.read(ready, 1)  # the parent writes, and gives the memory back
        own = ctypes.string_at(address, 4096) == b"\7" * 4096
        ctypes.string_at(address + 8192, 4096)  # whatever it is
        return own

    child = os.fork()
    if child == 0:
        os._exit(0 if write_and_wait() else 1)
    faults = [] if torch.equal(tensor[:4].cpu(), before) else ["the child wrote to its parent's tensor"]
    tensor.fill_(5)
    dist.all_reduce(tensor)
    if (tensor.cpu() != 5 * dist.get_world_size()).any():
        faults.append("all_reduce while a child lives")
    del tensor
    torch.accelerator.empty_cache()
    os.write(go, b"x")
    if (how := ends(child)) != "0":
        faults.append(f"the child: {how}")
    return faults


def trains_with_workers(rank: int) -> list[str]:
    """DDP with DataLoader workers by fork, started while collectives are under way: equal parameters, and every worker ends."""
    join(PATIENCE)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 40_000), torch.nn.Linear(40_000, 1)).to("neuron"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    numbers = torch.randn(64, 64, generator=torch.Generator().manual_seed(rank))
    pending = torch.ones(LARGE, device="neuron")
    workers: set[int] = set()
    for _ in range(2):
        work = dist.all_reduce(pending, async_op=True)
        loader = DataLoader(TensorDataset(numbers), batch_size=16, num_workers=2, pin_memory=True, multiprocessing_context="fork")
        batches = iter(loader)
        workers |= {worker.pid for worker in batches._workers}
        for (batch,) in batches:
            model(batch.to("neuron", non_blocking=True)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        work.wait()
        del batches, loader
    faults = []
    for name, parameter in model.named_parameters():
        others = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(others, parameter.detach())
        if any(not torch.equal(other.cpu(), parameter.detach().cpu()) for other in others):
            faults.append(f"{name} differs between ranks")
    if left := [worker for worker in workers if os.path.exists(f"/proc/{worker}")]:
        faults.append(f"workers that have not ended: {left}")
    return faults


def dies_with_a_living_child(rank: int, victim: int) -> str:
    """A rank is killed while its child goes on: the others notice the rank's end although the child has its memory and descriptors."""
    tensor = with_threads()
    if rank == victim:
        if os.fork() == 0:
            time.sleep(PATIENCE)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while True:
            dist.all_reduce(tensor)
    except dist.DistBackendError as error:
        return str(error) if time.monotonic() - begin < PATIENCE / 2 else f"only after {time.monotonic() - begin} s"
