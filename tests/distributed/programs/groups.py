"""Process groups: how they are made, split, used by threads, left and made again; works and futures."""

import os
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.distributed.launch import free_port
from tests.distributed.programs.joining import join

NEURON = torch.device("neuron")


def backend_of(group: dist.ProcessGroup | None = None) -> object:
    return (group or dist.group.WORLD)._get_backend(NEURON)


def total(group: dist.ProcessGroup | None = None, value: float = 1.0) -> float:
    tensor = torch.full((3,), value, device="neuron")
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def starts(rank: int, how: str) -> list[str]:
    """Every way to name the backend, twice in one process."""
    faults = []
    size = torch.distributed.get_world_size() if dist.is_initialized() else None
    assert size is None
    for _ in range(2):
        timeout = timedelta(seconds=90)  # these ways to start include the meeting
        device = torch.device("neuron", rank)
        if how == "nothing":
            dist.init_process_group(timeout=timeout)
        elif how == "device":
            dist.init_process_group(device_id=device, timeout=timeout)
        elif how == "name and device":
            dist.init_process_group("neuron", device_id=device, timeout=timeout)
        else:
            dist.init_process_group(how, timeout=timeout)
        size = dist.get_world_size()
        if torch.neuron.current_device() != rank or torch.empty(1, device="neuron").device != device:
            faults.append("the device is not that of the local rank")
        if backend_of().name() != "neuron" or NEURON not in dist.group.WORLD._device_types:
            faults.append("not the backend neuron")
        if total() != size:
            faults.append("all_reduce")
        if how.startswith("cpu:"):
            on_cpu = torch.ones(2)
            dist.all_reduce(on_cpu)
            if on_cpu[0] != size:
                faults.append("all_reduce on the CPU")
        else:
            try:
                dist.all_reduce(torch.ones(2))
                faults.append("CPU tensors are not refused")
            except RuntimeError:
                pass
        dist.barrier()
        dist.barrier(device_ids=[rank])
        gathered: list[object] = [None] * size
        dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
        if [item["rank"] for item in gathered] != list(range(size)):
            faults.append("all_gather_object")
        objects = [("from", rank), None] if rank == 0 else [None, None]
        dist.broadcast_object_list(objects, src=0)
        if objects != [("from", 0), None]:
            faults.append("broadcast_object_list")
        received: list[object] = [None]
        dist.scatter_object_list(received, [("to", r) for r in range(size)] if rank == 0 else None, src=0)
        if received != [("to", rank)]:
            faults.append("scatter_object_list")
        # Another port for the next time: a fast rank would find the store of the first time while rank 0 is still about to close it.
        port: list[object] = [free_port()]
        dist.broadcast_object_list(port, src=0)
        dist.destroy_process_group()
        os.environ["MASTER_PORT"] = str(port[0])
    return faults


def subgroups(rank: int) -> list[str]:
    """Four ranks: pairs, overlapping groups made in different orders, split groups, meshes."""
    join(60, device_id=torch.device("neuron", rank))
    faults = []
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    if total(pairs[rank // 2]) != 2:
        faults.append("pairs")
    # Overlapping groups; then two made by their members alone, as many by each rank: torch names such groups by their ranks and the
    # number of groups so far.
    wanted = [[0, 1, 2], [1, 2, 3], [0, 3]]
    made = [dist.new_group(ranks) for ranks in wanted]
    for ranks, group in zip(wanted, made, strict=True):
        if rank in ranks and total(group) != len(ranks):
            faults.append(f"group {ranks}")
    if total(dist.new_group([[0, 2], [1, 3]][rank % 2], use_local_synchronization=True)) != 2:
        faults.append("group made by its members alone")
    for _ in range(2):
        half = dist.split_group(split_ranks=[[0, 2], [1, 3]])
        if half.size() != 2 or total(half, rank) != (2 if rank % 2 == 0 else 4):
            faults.append("split_group")
        dist.destroy_process_group(half)
    mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("a", "b"))
    if total(mesh.get_group("a")) != 2 or total(mesh.get_group("b")) != 2 or total(mesh._flatten().get_group()) != 4:
        faults.append("mesh")
    # Two ranks exchange messages on a group that the others never use.
    quiet = dist.new_group([0, 1, 2, 3])
    if rank < 2:
        tensor = torch.full((100_000,), float(rank), device="neuron")
        other = torch.empty_like(tensor)
        works = [dist.isend(tensor, 1 - rank, group=quiet), dist.irecv(other, 1 - rank, group=quiet)]
        for work in works:
            work.wait()
        if other[0].item() != 1 - rank:
            faults.append("messages on a group that others do not use")
    dist.barrier()
    return faults


def works(rank: int) -> list[str]:
    join(60)
    faults = []
    size = dist.get_world_size()
    tensor = torch.ones(5, device="neuron")
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    if doubled.wait()[0].item() != 2 * size or tensor[0].item() != size:
        faults.append("future")
    if not work.is_completed() or not work.is_success() or work.exception() is not None or not work.wait():
        faults.append("state of a finished work")

    # A callback that uses the same group: it runs while no collective of the group does.
    def again(done: object) -> torch.Tensor:
        other = torch.ones(2, device="neuron")
        dist.all_reduce(other)
        return other

    if dist.all_reduce(tensor, async_op=True).get_future().then(again).wait()[0].item() != size:
        faults.append("collective in a callback")

    # A rank that is late: the work is not complete, a short wait raises, the work goes on.
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == size - 1:
        store.wait(["rank 0 has looked"])
    late = torch.ones(2, device="neuron")
    work = dist.all_reduce(late, async_op=True)
    if rank == 0:
        if work.is_completed():
            faults.append("completed before all ranks were there")
        try:
            work.wait(timedelta(milliseconds=200))
            faults.append("a short wait did not raise")
        except dist.DistBackendError:
            pass
        store.set("rank 0 has looked", "")
    work.wait()
    if late[0].item() != size:
        faults.append("after a short wait")

    # Messages: tags, any source, order, to itself.
    right, left = (rank + 1) % size, (rank - 1) % size
    a, b = torch.empty(3, device="neuron"), torch.empty(3, device="neuron")
    sends = [
        dist.isend(torch.full((3,), 10.0 + rank, device="neuron"), right, tag=1),
        dist.isend(torch.full((3,), 20.0 + rank, device="neuron"), right, tag=2),
    ]
    dist.recv(b, left, tag=2)
    dist.recv(a, left, tag=1)
    for send in sends:
        send.wait()
    if a[0].item() != 10 + left or b[0].item() != 20 + left:
        faults.append("tags")
    dist.barrier()
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            c = torch.empty(1, device="neuron")
            source = dist.recv(c)
            if c.item() != source:
                faults.append("any source")
            seen.add(source)
        if seen != set(range(1, size)):
            faults.append("any source: not everybody")
    else:
        dist.send(torch.full((1,), float(rank), device="neuron"), 0)
    dist.barrier()  # what follows has the same tag
    operations = [
        dist.P2POp(dist.isend, torch.full((50_000,), float(rank), device="neuron"), right),
        dist.P2POp(dist.irecv, large := torch.empty(50_000, device="neuron"), left),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    if large[-1].item() != left:
        faults.append("batch_isend_irecv")

    # Both send a large message first.
    if rank < 2:
        mine, theirs = torch.full((1_000_000,), float(rank), device="neuron"), torch.empty(1_000_000, device="neuron")
        send = dist.isend(mine, 1 - rank)
        dist.recv(theirs, 1 - rank)
        send.wait()
        if theirs[-1].item() != 1 - rank:
            faults.append("both send first")
    dist.barrier()
    if backend_of()._get_sequence_number_for_group() == 0:
        faults.append("sequence number")

    # Several threads, a group each.
    groups = [dist.new_group() for _ in range(3)]
    results: list[float] = []

    def use(group: dist.ProcessGroup) -> None:
        for _ in range(50):
            value = total(group)
        results.append(value)

    threads = [threading.Thread(target=use, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if results != [size] * 3:
        faults.append("threads")
    return faults


def same_bits(rank: int) -> list[bytes]:
    """Sums whose order matters, in the ways that a size may be cut into chunks."""
    join(60)
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        for count in (1000, 100_003, 2_000_001):
            generator = torch.Generator().manual_seed(rank)
            tensor = (
                (torch.randn(count, generator=generator) * 10 ** torch.randint(-3, 4, (count,), generator=generator)).to(dtype).to("neuron")
            )
            dist.all_reduce(tensor)
            results.append(tensor.cpu().view(torch.uint8).numpy().tobytes())
    return results
