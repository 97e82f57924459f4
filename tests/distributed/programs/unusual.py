"""Uses of collectives that nobody recommends: each function returns a list of faults, and runs on every rank."""

import threading
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from tests.distributed.programs.collectives import same
from tests.distributed.programs.joining import join

BIG = (3 << 20) + 5  # float32 elements: not through the group's segment, and no multiple of anything


def ones(count: int, value: float = 1.0) -> torch.Tensor:
    return torch.full((count,), value, device="neuron")


def refused(call: Callable[[], object]) -> str:
    """The message of the error that a call raises, or nothing."""
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    return ""


def layouts(rank: int) -> list[str]:
    """Large tensors at odd places, with strides, of every width; without elements; conjugated."""
    join(60)
    faults = []
    size = dist.get_world_size()
    for dtype in (torch.bool, torch.uint8, torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.complex64, torch.complex128):
        count = BIG // torch.empty(0, dtype=dtype).element_size()
        values = [torch.arange(count).add(r).remainder(2).to(torch.float32).to(dtype) for r in range(size)]
        mine = torch.empty(count + 3, dtype=dtype, device="neuron")[3:].copy_(values[rank])
        received = mine.clone()
        dist.broadcast(received, 1)
        if not same(received, values[1]):
            faults.append(f"broadcast {dtype}")
        gathered = [torch.empty(count + r, dtype=dtype, device="neuron")[r:] for r in range(size)]
        dist.all_gather(gathered, mine)
        if not all(same(part, value) for part, value in zip(gathered, values, strict=True)):
            faults.append(f"all_gather {dtype}")
        dist.all_reduce(mine)
        total = values[0].to(torch.complex128 if dtype.is_complex else torch.float64)
        for value in values[1:]:
            total = total + value.to(total.dtype)
        if not same(mine, (total != 0) if dtype is torch.bool else total.to(dtype)):
            faults.append(f"all_reduce {dtype}")
    columns = torch.arange(2.0 * 1500 * 1000, device="neuron").view(1000, 3000).t()
    dist.all_reduce(columns)
    if not same(columns, torch.arange(3e6).view(1000, 3000).t() * size):
        faults.append("transposed")
    pictures = torch.randn(8, 16, 100, 100, device="neuron").to(memory_format=torch.channels_last) if rank == 0 else ones(8 * 16 * 10000)
    pictures = pictures.view(8, 16, 100, 100) if rank else pictures
    dist.broadcast(pictures, 0)
    if pictures.is_contiguous() != (rank != 0) or float(pictures.std()) < 0.5:
        faults.append("channels_last on one rank only")
    if "conjugated" not in refused(lambda: dist.all_reduce(torch.full((BIG // 8,), 1 + 2j, device="neuron").conj())):
        faults.append("conjugated")  # torch itself refuses
    if "contiguous" not in refused(lambda: dist.all_reduce(ones(BIG * 2)[::2])):
        faults.append("every other element")
    if "contiguous" not in refused(lambda: dist.all_reduce(ones(1).expand(BIG))):
        faults.append("expanded")
    for shape in ((0,), (3, 0, 2), ()):
        tensor = torch.ones(shape, device="neuron")
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        out = torch.empty((size, *shape), device="neuron")
        dist.all_gather_into_tensor(out.view(-1), tensor.view(-1))
        if not same(out, torch.full((size, *shape), float(size))):
            faults.append(f"shape {shape}")
    return faults


def aliases(rank: int) -> list[str]:
    """Outputs over inputs, tensors that share storage, in place."""
    join(60)
    faults = []
    size = dist.get_world_size()
    whole = torch.zeros(size * BIG, device="neuron")
    whole[rank * BIG : (rank + 1) * BIG] = rank + 1
    expected = torch.arange(1.0, size + 1).repeat_interleave(BIG)
    dist.all_gather_into_tensor(whole, whole[rank * BIG : (rank + 1) * BIG])
    if not same(whole, expected):
        faults.append("all_gather_into_tensor in place")
    whole.zero_()
    whole[rank * BIG : (rank + 1) * BIG] = rank + 1
    dist.all_gather(list(whole.split(BIG)), whole[rank * BIG : (rank + 1) * BIG])
    if not same(whole, expected):
        faults.append("all_gather in place")
    # The input lies over the place of the next rank.
    start = ((rank + 1) % size) * BIG
    whole[start : start + BIG] = rank + 1
    dist.all_gather_into_tensor(whole, whole[start : start + BIG])
    if not same(whole, expected):
        faults.append("all_gather over its input")
    parts = list(torch.full((size * BIG,), float(rank), device="neuron").split(BIG))
    dist.all_to_all(parts, parts)
    if not same(torch.cat(parts), torch.arange(float(size)).repeat_interleave(BIG)):
        faults.append("all_to_all in place")
    row = torch.arange(float(size * (size + 1) // 2 * BIG), device="neuron")  # rank r sends r + 1 parts to each, from its beginning
    row += rank
    sends, receives = [BIG * (rank + 1) // size] * size, [BIG * (r + 1) // size for r in range(size)]
    expected_row = torch.cat([torch.arange(float(rank * n), float((rank + 1) * n)) + r for r, n in enumerate(receives)])
    dist.all_to_all_single(row[: sum(receives)], row[: sum(sends)], receives, sends)
    if not same(row[: sum(receives)], expected_row):
        faults.append("all_to_all over its input, cut otherwise")
    tensor = torch.arange(float(size * BIG), device="neuron")
    shifted = tensor[3 : 3 + BIG]
    dist.reduce_scatter_tensor(shifted, tensor)
    if not same(shifted, torch.arange(float(size * BIG))[rank * BIG : (rank + 1) * BIG] * size):
        faults.append("reduce_scatter over its input")
    one = ones(BIG, rank + 1.0)
    works = [dist.all_reduce(one, async_op=True) for _ in range(3)]  # one after the other
    for work in works:
        work.wait()
    if not same(one, torch.full((BIG,), float(sum(range(1, size + 1)) * size**2))):
        faults.append("three at once on one tensor")
    turned = torch.full((700, 1500), rank + 1.0, device="neuron").t()
    works = [dist.all_reduce(turned, async_op=True) for _ in range(3)]
    for work in works:
        work.wait()
    if not same(turned, torch.full((1500, 700), float(sum(range(1, size + 1)) * size**2))):
        faults.append("three at once on one transposed tensor")
    halves = ones(2 * BIG)
    work = dist.all_reduce(halves[:BIG], async_op=True)
    dist.all_reduce(halves[BIG:])
    work.wait()
    if not same(halves, torch.full((2 * BIG,), float(size))):
        faults.append("halves of one storage")
    return faults


def lifetimes(rank: int) -> list[str]:
    """Tensors from before the first group, freed or resized while in use, above 512 MiB; caches emptied between."""
    before = torch.full((BIG,), rank + 1.0, device="neuron")
    join(120)
    faults = []
    size = dist.get_world_size()
    total = float(sum(range(1, size + 1)))
    dist.all_reduce(before)
    if not same(before, torch.full((BIG,), total)):
        faults.append("from before the first group")
    works = []
    for _ in range(10):
        tensor = ones(BIG, rank + 1.0)
        works.append(dist.all_reduce(tensor, async_op=True))
        del tensor
        ones(BIG, -1.0)  # would get its place
    for work in works:
        work.wait()
        if float(work.result()[0].sum()) != total * BIG and not same(work.result()[0], torch.full((BIG,), total)):
            faults.append("freed after async_op")
    tensor = ones(BIG, rank + 1.0)
    dist.all_reduce(tensor)
    tensor.untyped_storage().resize_(0)
    torch.neuron.empty_cache()
    tensor.untyped_storage().resize_(BIG * 4)
    tensor.fill_(rank + 1.0)
    dist.all_reduce(tensor)
    if not same(tensor, torch.full((BIG,), total)):
        faults.append("storage resized")
    for turn in range(20):  # where a peer had its tensor a moment ago there is another
        count = BIG + turn * 100_000
        tensor = ones(count, rank + turn)
        dist.all_reduce(tensor)
        if tensor[0].item() != tensor[-1].item() or tensor[0].item() != sum(range(size)) + size * turn:
            faults.append(f"after empty_cache, turn {turn}")
        del tensor
        if turn % 2 == rank % 2:
            torch.neuron.empty_cache()
    huge = torch.full((140 << 20,), rank + 1, dtype=torch.int32, device="neuron")  # 560 MiB
    dist.all_reduce(huge)
    if huge.min().item() != total or huge.max().item() != total:
        faults.append("560 MiB")
    return faults


def groups_at_once(rank: int) -> list[str]:
    """Two groups at once above 1 MiB, from threads; a group of one rank; a group that fails beside one that works."""
    join(120)
    faults = []
    size = dist.get_world_size()
    alone = [dist.new_group([r]) for r in range(size)][rank]
    tensor = ones(BIG, 3.0)
    dist.all_reduce(tensor, group=alone)
    dist.broadcast(tensor, rank, group=alone)
    out = torch.empty(BIG, device="neuron")
    dist.all_gather_into_tensor(out, tensor, group=alone)
    dist.reduce_scatter_tensor(out, tensor, group=alone)
    if not same(out, torch.full((BIG,), 3.0)):
        faults.append("a group of one rank")
    pair = [dist.new_group(list(range(size))) for _ in range(2)]

    def use(number: int) -> None:
        for turn in range(15):
            mine = ones(BIG, float(turn + number))
            dist.all_reduce(mine, group=pair[number])
            dist.broadcast(mine, turn % size, group=pair[number])
            if not same(mine, torch.full((BIG,), float(turn + number) * size)):
                faults.append(f"group {number}, turn {turn}")

    threads = [threading.Thread(target=use, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = dist.new_group(list(range(size)))
    message = refused(lambda: dist.all_reduce(ones(BIG + rank), group=broken))
    if "all_reduce" not in message:
        faults.append(f"sizes that differ: {message!r}")
    use(0)  # the neighbours of that tensor are well
    return faults


def memory_stays(rank: int) -> list[str]:
    """A long run with tensors of changing sizes: what the ranks share does not grow, and is given back."""
    join(120)
    generator = torch.Generator().manual_seed(1)

    def shared() -> Iterator[int]:
        with open("/proc/self/smaps_rollup") as file:
            yield from (int(line.split()[1]) << 10 for line in file if line.startswith("Pss_Shmem:"))

    levels = []
    for turn in range(60):
        count = int(torch.randint(1 << 18, 6 << 20, (), generator=generator))
        tensor = ones(count)
        dist.all_reduce(tensor)
        out = torch.empty(count // 2 * 2, device="neuron")
        dist.all_gather_into_tensor(out, tensor[: count // 2]) if dist.get_world_size() == 2 else None
        del tensor, out
        if turn % 20 == 19:
            torch.neuron.empty_cache()
            dist.barrier()
            levels.append(sum(shared()))
            dist.barrier()
    return [f"shared memory: {levels}"] if levels[-1] > levels[0] + (1 << 20) or levels[-1] > (32 << 20) else []


def sparse(rank: int) -> list[str]:
    """Sums of sparse tensors, as Gloo has them; everything else says that it cannot."""
    join(60)
    faults = []
    size = dist.get_world_size()

    def make(r: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        entries = r % 3  # one rank has none
        indices = torch.stack([torch.arange(entries) + r, torch.full((entries,), 1)])
        return torch.sparse_coo_tensor(indices, torch.ones(entries, 2, dtype=dtype) * (r + 1), (size + 3, 2, 2), dtype=dtype)

    for dtype in (torch.float32, torch.bfloat16, torch.int64):  # of complex ones torch sums a copy
        for asynchronous in (False, True):
            tensor = make(rank, dtype).to("neuron")
            work = dist.all_reduce(tensor, async_op=asynchronous)
            if work is not None:
                work.wait()
                if work.get_future().value()[0] is not tensor and not work.get_future().value()[0].is_sparse:
                    faults.append("future")
            total = torch.stack([make(r, dtype).to_dense() for r in range(size)]).sum(0)
            if not (tensor.is_sparse and tensor.is_coalesced() and same(tensor.cpu().to_dense(), total.to(dtype))):
                faults.append(f"{dtype} {asynchronous=}: {tensor}")
    twice = torch.sparse_coo_tensor([[1, 1, 0]], [1.0, 2.0, 3.0], (4,)).to("neuron")
    dist.all_reduce(twice)
    if not same(twice.cpu().to_dense(), torch.tensor([3.0, 3.0, 0.0, 0.0]) * size):
        faults.append("not coalesced")
    tensor = make(rank).to("neuron")
    for label, call in {
        "maximum": lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX),
        "broadcast": lambda: dist.broadcast(tensor, 0),
        "reduce": lambda: dist.reduce(tensor, 0),
        "all_gather": lambda: dist.all_gather([tensor] * size, tensor),
        "all_to_all": lambda: dist.all_to_all([tensor] * size, [tensor] * size),
        "send": lambda: dist.send(tensor, (rank + 1) % size),
    }.items():
        if "sparse" not in (message := refused(call)):
            faults.append(f"{label}: {message!r}")
    dist.barrier()
    message = refused(lambda: dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (3 + rank,)).to("neuron")))
    if "rank" not in message or "sizes" not in message:
        faults.append(f"sizes that differ: {message!r}")
    return faults


def sparse_gradients(rank: int) -> list[str]:
    """DistributedDataParallel with `Embedding(sparse=True)` trains as one process does."""
    join(60)
    size = dist.get_world_size()
    generator = torch.Generator().manual_seed(3)
    batches = [torch.randint(0, 50, (size * 4, 5), generator=generator) for _ in range(6)]

    def model() -> torch.nn.Sequential:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Embedding(50, 8, sparse=True), torch.nn.Flatten(), torch.nn.Linear(40, 3))

    def train(module: torch.nn.Module, share: slice, device: str) -> None:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for batch in batches:
            loss = module(batch[share].to(device)).square().mean()
            loss.backward()
            if not module.get_parameter(next(iter(dict(module.named_parameters())))).grad.is_sparse:
                raise AssertionError("the gradient is dense")
            optimizer.step()
            optimizer.zero_grad()

    alone = model()
    train(alone, slice(None), "cpu")
    together = torch.nn.parallel.DistributedDataParallel(model().to("neuron"))
    train(together, slice(rank * 4, rank * 4 + 4), "neuron")
    return [
        name
        for (name, mine), expected in zip(together.module.named_parameters(), alone.parameters(), strict=True)
        if not torch.allclose(mine.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-6)
    ]


def peer_leaves_while_read(rank: int) -> list[str]:
    """One rank ends without a word as soon as it is through; the other goes on with what it read, and makes no group any more."""
    import os

    join(20)
    for _ in range(20):
        tensor = ones(BIG * 2, rank + 1.0)
        dist.all_reduce(tensor)
    if rank == 1:
        os._exit(0)
    message = refused(lambda: dist.all_reduce(tensor))
    faults = [] if "rank 1" in message else [f"no word of rank 1: {message!r}"]
    if not same(ones(BIG), torch.ones(BIG)) or tensor.numel() != BIG * 2:
        faults.append("memory after the peer is gone")
    tensor.add_(1)
    torch.neuron.empty_cache()
    return faults
