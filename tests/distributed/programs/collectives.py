"""Collectives on neuron tensors against references made with CPU tensors. Each function runs on every rank and returns a list of faults."""

import itertools
import random

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from tests.distributed.programs.joining import join

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
COMPLEX = [torch.complex64, torch.complex128]
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *FLOAT8, *COMPLEX]
SIZES = [(), (0,), (1,), (7,), (3, 5), (1000, 33)]

OPERATIONS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "product": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "band": ReduceOp.BAND,
    "bor": ReduceOp.BOR,
    "bxor": ReduceOp.BXOR,
}


def start(timeout: float = 60) -> None:
    join(timeout)


def make(dtype: torch.dtype, size: tuple[int, ...], seed: int) -> torch.Tensor:
    """Random values on the CPU, the same wherever they are made: small whole numbers, so that every order of addition is exact."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 2 if dtype is torch.bool else 4, size, generator=generator)
    if dtype.is_signed and dtype is not torch.bool:
        numbers = numbers - 2
    if dtype.is_complex:
        imaginary = torch.randint(-2, 3, size, generator=generator)
        return torch.complex(numbers.double(), imaginary.double()).to(dtype)
    return numbers.to(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, on the CPU."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)


def same(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    a, b = actual.detach().cpu(), expected.detach().cpu()
    if a.dtype.is_floating_point or a.dtype.is_complex:
        wide = torch.complex128 if a.dtype.is_complex else torch.float64
        return bool(torch.equal(a.to(wide), b.to(wide)))  # zeros may differ in their sign
    return bool(torch.equal(bits(a), bits(b)))


def reduced(tensors: list[torch.Tensor], operation: str) -> torch.Tensor | None:
    """The reference; None where the pair has no meaning."""
    dtype = tensors[0].dtype
    if dtype is torch.bool:
        wide = torch.stack(tensors)
        any_of, all_of = wide.any(0), wide.all(0)
        odd = (wide.sum(0) % 2).bool()
        table = {"sum": any_of, "product": all_of, "min": all_of, "max": any_of, "band": all_of, "bor": any_of, "bxor": odd}
        return table.get(operation)
    floating = dtype.is_floating_point
    if operation in ("band", "bor", "bxor"):
        if floating or dtype.is_complex:
            return None
        result = tensors[0].to(torch.int64)
        for tensor in tensors[1:]:
            other = tensor.to(torch.int64)
            result = result & other if operation == "band" else result | other if operation == "bor" else result ^ other
        return result.to(dtype)
    if operation in ("min", "max", "product") and dtype.is_complex:  # torch.distributed itself refuses the product
        return None
    wide_dtype = torch.complex128 if dtype.is_complex else torch.float64 if floating else torch.int64
    wide = torch.stack([tensor.to(wide_dtype) for tensor in tensors])
    if operation == "sum":
        result = wide.sum(0)
    elif operation == "avg":
        result = wide.sum(0)
        if dtype.is_complex:  # PyTorch's complex division rounds more than once
            result = torch.view_as_complex(torch.view_as_real(result) / len(tensors))
        elif floating:
            result = result / len(tensors)
        else:  # Whole numbers wrap around before they are divided, and the division rounds towards zero.
            result = torch.div(result.to(dtype).to(torch.int64), len(tensors), rounding_mode="trunc")
    elif operation == "product":
        result = wide.prod(0)
    else:
        result = wide.amin(0) if operation == "min" else wide.amax(0)
    if floating and dtype.itemsize < 4:
        result = result.to(torch.float32)
    return result.to(dtype)


def reductions(rank: int) -> list[str]:
    """all_reduce, reduce and reduce_scatter with every reduction and dtype."""
    start()
    size = dist.get_world_size()
    faults = []
    for dtype, (name, operation), shape in itertools.product(DTYPES, OPERATIONS.items(), SIZES):
        inputs = [make(dtype, shape, seed=100 * r + len(shape)) for r in range(size)]
        expected = reduced(inputs, name)
        label = f"{name} {dtype} {shape}"
        tensor = inputs[rank].to("neuron")
        if expected is None:
            if shape != (7,):
                continue
            try:
                dist.all_reduce(tensor, operation)
            except ValueError:
                continue
            faults.append(f"all_reduce {label}: no error")
            continue
        dist.all_reduce(tensor, operation)
        if not same(tensor, expected):
            faults.append(f"all_reduce {label}: {tensor.cpu().flatten()[:5]} for {expected.flatten()[:5]}")
        root = len(shape) % size
        tensor = inputs[rank].to("neuron")
        dist.reduce(tensor, root, operation)
        if not same(tensor, expected if rank == root else inputs[rank]):
            faults.append(f"reduce {label}")
        parts = [[make(dtype, shape, seed=7 + 1000 * source + target) for target in range(size)] for source in range(size)]
        expected = reduced([parts[source][rank] for source in range(size)], name)
        output = torch.empty(shape, dtype=dtype, device="neuron")
        dist.reduce_scatter(output, [part.to("neuron") for part in parts[rank]], operation)
        if not same(output, expected):
            faults.append(f"reduce_scatter {label}")
        if shape:
            joined = torch.cat([part.view(torch.uint8) if dtype in FLOAT8 else part for part in parts[rank]])
            joined = joined.view(dtype).to("neuron")
            output = torch.empty(shape, dtype=dtype, device="neuron")
            dist.reduce_scatter_tensor(output, joined, operation)
            if not same(output, expected):
                faults.append(f"reduce_scatter_tensor {label}")
    return faults


def movements(rank: int) -> list[str]:
    """Collectives that move tensors, with every dtype."""
    start()
    size = dist.get_world_size()
    faults: list[str] = []

    def check(label: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
        if not (actual.dtype == expected.dtype and actual.shape == expected.shape and torch.equal(bits(actual), bits(expected))):
            faults.append(label)

    def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="neuron")

    for dtype, shape in itertools.product([*DTYPES, torch.float8_e8m0fnu, torch.complex32], SIZES):
        # Any bits must arrive as they are.
        def raw(seed: int, shape: tuple[int, ...] = shape, dtype: torch.dtype = dtype) -> torch.Tensor:
            generator = torch.Generator().manual_seed(seed)
            count = torch.Size(shape).numel() * dtype.itemsize
            highest = 2 if dtype is torch.bool else 256
            data = torch.randint(0, highest, (count,), generator=generator, dtype=torch.uint8)
            return data.view(dtype).reshape(shape)

        label = f"{dtype} {shape}"
        inputs = [raw(r) for r in range(size)]
        for root in range(size):
            tensor = inputs[rank].to("neuron")
            dist.broadcast(tensor, root)
            check(f"broadcast {label} from {root}", tensor, inputs[root])
        outputs = [empty(shape, dtype) for _ in range(size)]
        dist.all_gather(outputs, inputs[rank].to("neuron"))
        for r in range(size):
            check(f"all_gather {label} {r}", outputs[r], inputs[r])
        root = (len(shape) + 1) % size
        collected = [empty(shape, dtype) for _ in range(size)] if rank == root else None
        dist.gather(inputs[rank].to("neuron"), collected, root)
        for r in range(size if collected else 0):
            check(f"gather {label} {r}", collected[r], inputs[r])
        output = empty(shape, dtype)
        dist.scatter(output, [raw(50 + r).to("neuron") for r in range(size)] if rank == root else None, root)
        check(f"scatter {label}", output, raw(50 + rank))
        outputs = [empty(shape, dtype) for _ in range(size)]
        dist.all_to_all(outputs, [raw(1000 * rank + target).to("neuron") for target in range(size)])
        for r in range(size):
            check(f"all_to_all {label} {r}", outputs[r], raw(1000 * r + rank))
        if shape:
            stacked = empty((size * shape[0], *shape[1:]), dtype)
            dist.all_gather_into_tensor(stacked, inputs[rank].to("neuron"))
            for r in range(size):
                check(f"all_gather_into_tensor {label} {r}", stacked[r * shape[0] : (r + 1) * shape[0]], inputs[r])
            source = empty((size * shape[0], *shape[1:]), dtype)
            for target in range(size):
                source[target * shape[0] : (target + 1) * shape[0]].copy_(raw(1000 * rank + target))
            exchanged = torch.empty_like(source)
            dist.all_to_all_single(exchanged, source)
            for r in range(size):
                check(f"all_to_all_single {label} {r}", exchanged[r * shape[0] : (r + 1) * shape[0]], raw(1000 * r + rank))
        right, left = (rank + 1) % size, (rank - 1) % size
        works = [dist.isend(inputs[rank].to("neuron"), right)]
        received = empty(shape, dtype)
        works.append(dist.irecv(received, left))
        for work in works:
            work.wait()
        check(f"send/recv {label}", received, inputs[left])
    return faults


def uneven(rank: int) -> list[str]:
    """Lists whose tensors differ in size, split sizes, coalesced variants, tensors within larger ones."""
    start()
    size = dist.get_world_size()
    faults: list[str] = []

    def check(label: str, good: bool) -> None:
        if not good:
            faults.append(label)

    rows = [3 * r % 5 for r in range(size)]
    whole = [torch.arange(rows[r] * 4).reshape(rows[r], 4) + 100 * r for r in range(size)]
    outputs = [torch.empty(rows[r], 4, dtype=torch.int64, device="neuron") for r in range(size)]
    dist.all_gather(outputs, whole[rank].to("neuron"))
    check("all_gather", all(same(outputs[r], whole[r]) for r in range(size)))
    output = torch.empty(rows[rank], 4, dtype=torch.int64, device="neuron")
    dist.reduce_scatter(output, [(whole[r] + rank).to("neuron") for r in range(size)])
    check("reduce_scatter", same(output, size * whole[rank] + sum(range(size))))

    sends = [(rank + target) % 3 for target in range(size)]
    receives = [(source + rank) % 3 for source in range(size)]
    source = torch.cat([torch.full((sends[target], 2), 10.0 * rank + target) for target in range(size)]).to("neuron")
    target = torch.empty(sum(receives), 2, device="neuron")
    dist.all_to_all_single(target, source, receives, sends)
    check("all_to_all_single", same(target, torch.cat([torch.full((receives[r], 2), 10.0 * r + rank) for r in range(size)])))
    lists = [torch.empty(receives[r], device="neuron") for r in range(size)]
    dist.all_to_all(lists, [torch.full((sends[r],), float(rank), device="neuron") for r in range(size)])
    check("all_to_all", all(same(lists[r], torch.full((receives[r],), float(r))) for r in range(size)))

    with dist._coalescing_manager():
        tensors = [torch.full((n,), float(rank), device="neuron") for n in (1, 5, 1000)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    check("coalesced all_reduce", all(same(tensor, torch.full(tensor.shape, float(sum(range(size))))) for tensor in tensors))
    gathered = [torch.empty(size * n, device="neuron") for n in (1, 5)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for output, n in zip(gathered, (1, 5), strict=True):
            dist.all_gather_into_tensor(output, torch.full((n,), float(rank), device="neuron"))
    manager.wait()
    check(
        "coalesced all_gather", all(same(g, torch.arange(size).float().repeat_interleave(n)) for g, n in zip(gathered, (1, 5), strict=True))
    )
    scattered = [torch.empty(n, device="neuron") for n in (1, 5)]
    with dist._coalescing_manager():
        for output, n in zip(scattered, (1, 5), strict=True):
            dist.reduce_scatter_tensor(output, torch.arange(size).float().repeat_interleave(n).to("neuron"))
    check("coalesced reduce_scatter", all(same(s, torch.full(s.shape, float(size * rank))) for s in scattered))
    with dist._coalescing_manager(device=torch.device("neuron")):
        tensor = torch.full((3,), float(rank), device="neuron")
        dist.broadcast(tensor, 0)
    check("coalesced broadcast", same(tensor, torch.zeros(3)))

    # In place: the input is this rank's part of the output.
    buffer = torch.full((size * 6,), -1.0, device="neuron")
    buffer[rank * 6 : (rank + 1) * 6] = float(rank)
    dist.all_gather_into_tensor(buffer, buffer[rank * 6 : (rank + 1) * 6])
    check("all_gather in place", same(buffer, torch.arange(size).float().repeat_interleave(6)))
    # Dense in another order of dimensions.
    transposed = torch.arange(6.0).reshape(2, 3).to("neuron").t()
    dist.all_reduce(transposed)
    check("all_reduce transposed", same(transposed, size * torch.arange(6.0).reshape(2, 3).t()))
    images = torch.arange(120.0).reshape(2, 3, 4, 5)
    mixed = images.to("neuron", memory_format=torch.channels_last if rank % 2 else torch.contiguous_format) * (rank + 1)
    dist.broadcast(mixed, 0)
    check("broadcast channels_last", same(mixed, images))
    try:
        dist.all_reduce(torch.zeros(8, device="neuron")[::2])
        check("strided tensors are refused", False)
    except ValueError as error:
        check("strided tensors are refused", "must be contiguous" in str(error))
    factor = dist._make_nccl_premul_sum(0.5)
    tensor = torch.full((5,), float(rank), device="neuron")
    dist.all_reduce(tensor, factor)
    check("premul_sum", same(tensor, torch.full((5,), 0.5 * sum(range(size)))))
    factor = dist._make_nccl_premul_sum(torch.tensor([float(rank + 1)], device="neuron"))
    tensor = torch.ones(5, device="neuron")
    dist.all_reduce(tensor, factor)
    check("premul_sum with a tensor", same(tensor, torch.full((5,), float(sum(range(1, size + 1))))))
    view = torch.complex(torch.ones(4), torch.full((4,), 2.0)).to("neuron").conj()
    dist.broadcast(view.resolve_conj(), 0)
    dist.all_reduce(view.resolve_conj())
    return faults


def random_schedules(rank: int, first: int, count: int) -> list[str]:
    """Random programs of collectives, asynchronous or not, on several groups at once, with messages in between."""
    start()
    size = dist.get_world_size()
    halves = [dist.new_group(list(range(size // 2))), dist.new_group(list(range(size // 2, size)))]
    reverse = dist.new_group(list(range(size)))
    faults = []
    for seed in range(first, first + count):
        chance = random.Random(seed)
        pending = []
        for step in range(chance.randint(3, 25)):
            kind = chance.choice(
                ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "ring", "wait", "half", "barrier"]
            )
            count_of = chance.choice([0, 1, 3, 17, 1000, 20011])
            dtype = chance.choice([torch.int64, torch.float32, torch.bfloat16, torch.uint8])
            asynchronous = chance.random() < 0.6
            group = chance.choice([None, reverse])
            root = chance.randrange(size)
            values = [make(dtype, (count_of,), 31 * seed + step + r) for r in range(size)]
            mine = values[rank].to("neuron")
            if kind == "wait":
                while pending:
                    work, actual, expected, label = pending.pop(chance.randrange(len(pending)))
                    for one in work:
                        one.wait()
                    if not same(actual, expected):
                        faults.append(label)
                continue
            if kind == "all_reduce":
                work, actual, expected = dist.all_reduce(mine, group=group, async_op=asynchronous), mine, reduced(values, "sum")
            elif kind == "all_gather":
                actual = torch.empty(size * count_of, dtype=dtype, device="neuron")
                work, expected = dist.all_gather_into_tensor(actual, mine, group=group, async_op=asynchronous), torch.cat(values)
            elif kind == "reduce_scatter":
                actual = torch.empty(count_of, dtype=dtype, device="neuron")
                work = dist.reduce_scatter_tensor(actual, mine.repeat(size), group=group, async_op=asynchronous)
                expected = reduced(values, "sum")
            elif kind == "broadcast":
                work, actual, expected = dist.broadcast(mine, root, group=group, async_op=asynchronous), mine, values[root]
            elif kind == "all_to_all":
                actual = torch.empty(size * count_of, dtype=dtype, device="neuron")
                work, expected = dist.all_to_all_single(actual, mine.repeat(size), group=group, async_op=asynchronous), torch.cat(values)
            elif kind == "ring":
                actual = torch.empty(count_of, dtype=dtype, device="neuron")
                works = [
                    dist.isend(mine, (rank + 1) % size, group=group, tag=step),
                    dist.irecv(actual, (rank - 1) % size, group=group, tag=step),
                ]
                pending.append((works, actual, values[(rank - 1) % size], f"seed {seed} step {step} ring"))
                continue
            elif kind == "half":
                which = 0 if rank < size // 2 else 1
                members = range(size // 2) if which == 0 else range(size // 2, size)
                work, actual = dist.all_reduce(mine, group=halves[which], async_op=asynchronous), mine
                expected = reduced([values[r] for r in members], "sum")
            else:
                work, actual, expected = dist.barrier(group, async_op=asynchronous), mine, values[rank]
            label = f"seed {seed} step {step} {kind} {dtype} {count_of} async={asynchronous}"
            if work is None:
                if not same(actual, expected):
                    faults.append(label)
            else:
                pending.append(([work], actual, expected, label))
        for work, actual, expected, label in pending:
            for one in work:
                one.wait()
            if not same(actual, expected):
                faults.append(label)
    return faults


# So much that every rank's part is in memory that the others can read.
LARGE = 8 << 20


def large(rank: int) -> list[str]:
    """Collectives on both sides of the size from which ranks read each other's tensors, aligned or not, in place or not."""
    from torch_neuronx.telemetry import get_counters

    start()
    size = dist.get_world_size()
    faults: list[str] = []

    def check(label: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
        if not same(actual, expected):
            faults.append(label)

    def on_device(values: torch.Tensor, shift: int) -> torch.Tensor:
        """The values in memory of their own, `shift` elements after its start."""
        tensor = torch.empty(len(values) + shift, dtype=values.dtype, device="neuron")[shift:]
        return tensor.copy_(values)

    for elements, (shift, asynchronous) in itertools.product((LARGE // 4 - 16, LARGE // 4 + 17), ((0, False), (1, True))):
        label = f"{elements} elements, shifted by {shift}, {asynchronous=}"
        direct = get_counters()["direct_collectives"]
        part = -(-elements // size)
        values = [make(torch.float32, (part * size,), seed=31 * r + elements) for r in range(size)]

        def finish(work: dist.Work | None) -> None:
            if work is not None:
                work.wait()

        tensor = on_device(values[rank], shift)
        finish(dist.all_reduce(tensor, async_op=asynchronous))
        total = reduced(values, "sum")
        check(f"all_reduce {label}", tensor, total)
        tensor = on_device(values[rank], shift)
        finish(dist.broadcast(tensor, size - 1, async_op=asynchronous))
        check(f"broadcast {label}", tensor, values[size - 1])
        tensor = on_device(values[rank], shift)
        scattered = on_device(torch.zeros(part), shift)
        finish(dist.reduce_scatter_tensor(scattered, tensor, async_op=asynchronous))
        check(f"reduce_scatter {label}", scattered, total[rank * part : (rank + 1) * part])
        finish(dist.reduce_scatter_tensor(tensor[rank * part : (rank + 1) * part], tensor, async_op=asynchronous))
        check(f"reduce_scatter in place {label}", tensor[rank * part : (rank + 1) * part], total[rank * part : (rank + 1) * part])
        gathered = on_device(torch.zeros(part * size), shift)
        mine = on_device(values[rank][:part], shift)
        finish(dist.all_gather_into_tensor(gathered, mine, async_op=asynchronous))
        check(f"all_gather {label}", gathered, torch.cat([value[:part] for value in values]))
        exchanged = on_device(torch.zeros(part * size), shift)
        finish(dist.all_to_all_single(exchanged, on_device(values[rank], shift), async_op=asynchronous))
        check(f"all_to_all {label}", exchanged, torch.cat([value[rank * part : (rank + 1) * part] for value in values]))
        root = size - 1
        tensor = on_device(values[rank], shift)
        finish(dist.reduce(tensor, root, async_op=asynchronous))
        check(f"reduce {label}", tensor, total if rank == root else values[rank])
        parts = [value[:part] for value in values]
        lists = [on_device(torch.zeros(part), shift) for _ in range(size)] if rank == root else None
        finish(dist.gather(mine, lists, root, async_op=asynchronous))
        for source, gathered_part in enumerate(lists or []):
            check(f"gather from {source} {label}", gathered_part, parts[source])
        scattered = on_device(torch.zeros(part), shift)
        lists = [on_device(one, shift) for one in parts] if rank == root else None
        finish(dist.scatter(scattered, lists, root, async_op=asynchronous))
        check(f"scatter {label}", scattered, parts[rank])
        new = get_counters()["direct_collectives"] - direct
        if part * size * 4 >= LARGE and new < 9:
            faults.append(f"{new} of 9 collectives without copies in between: {label}")
    return faults


def shared_memory_and_forks(rank: int) -> list[str]:
    """A forked child neither sees the group nor changes its parent's tensors; memory that is given back is gone."""
    import os

    start()
    faults: list[str] = []
    tensor = torch.full((LARGE,), float(rank + 1), device="neuron")
    dist.all_reduce(tensor)
    address = tensor.data_ptr()
    child = os.fork()
    if child == 0:
        import ctypes

        try:
            tensor.add_(1)
        except RuntimeError:
            ctypes.memset(address, 0, LARGE * 4)  # what no program does: the parent must not notice
            os._exit(0 if ctypes.string_at(address, 4) == b"\0\0\0\0" else 1)
        os._exit(2)
    if os.waitpid(child, 0)[1] != 0:
        faults.append("the child")
    dist.all_reduce(tensor)
    expected = sum(range(1, dist.get_world_size() + 1)) * dist.get_world_size()
    if not same(tensor, torch.full((LARGE,), float(expected))):
        faults.append(f"after the fork: {tensor[:3]} for {expected}")

    def shared_memory() -> int:
        with open("/proc/self/smaps_rollup") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss_Shmem:"))

    dist.barrier()
    before = shared_memory()
    del tensor
    torch.accelerator.empty_cache()
    dist.barrier()
    if before - shared_memory() < LARGE * 4 // 2:
        faults.append(f"shared memory: {before} bytes, then {shared_memory()}")
    return faults


def many_ranks(rank: int, elements: int) -> list[str]:
    """The collectives that every framework begins with, once small and once large."""
    start(timeout=120)
    size = dist.get_world_size()
    faults: list[str] = []
    for count in (1, elements):
        tensor = torch.full((count,), float(rank), device="neuron")
        dist.all_reduce(tensor)
        if not same(tensor, torch.full((count,), size * (size - 1) / 2)):
            faults.append(f"all_reduce of {count}")
        gathered = torch.empty(size * count, device="neuron")
        dist.all_gather_into_tensor(gathered, torch.full((count,), float(rank), device="neuron"))
        if not same(gathered, torch.arange(float(size)).repeat_interleave(count)):
            faults.append(f"all_gather of {count}")
        dist.barrier()
        tensor = torch.full((count,), float(rank), device="neuron")
        dist.broadcast(tensor, size - 1)
        if not same(tensor, torch.full((count,), size - 1.0)):
            faults.append(f"broadcast of {count}")
    return faults
