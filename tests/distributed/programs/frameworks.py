"""Training with torch's own ways of parallelism.

Each function trains a small model for 20 steps and, in the same process, its unparallelised twin with the global batch, and returns
both sequences of losses with the largest relative difference of parameters.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from tests.distributed.programs.joining import join

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH, STEPS = 64, 32, 4, 16, 8, 20


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.view(y.shape[0], y.shape[1], -1, WIDTH // HEADS).transpose(1, 2)

        y = F.scaled_dot_product_attention(heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.feed = nn.LayerNorm(WIDTH), Feed()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Model(nn.Module):
    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@dataclass
class Result:
    losses: list[float] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)
    parameters: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


def start(timeout: float = 60) -> None:
    join(timeout, backend=None, device_id=torch.device("neuron", torch.neuron.current_device()))


def make_model(blocks: int = 2) -> Model:
    torch.manual_seed(1)
    return Model(blocks).to("neuron")


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    result = []
    for _ in range(STEPS):
        # Each token follows from the one before, so there is something to learn.
        tokens = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator) * 5 ** torch.arange(LENGTH + 1) % VOCABULARY
        result.append((tokens[:, :-1].contiguous().to("neuron"), tokens[:, 1:].contiguous().to("neuron")))
    return result


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(0, 1))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    # PyTorch's multi-tensor updates take tensors or DTensors, not both.
    mixed = len({isinstance(parameter, DTensor) for parameter in model.parameters()}) > 1
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False if mixed else None)


def train(model: nn.Module, share: slice | None = None, loss: Callable[..., torch.Tensor] = loss_of, clip: bool = False) -> list[float]:
    """Train on each batch, or on the rows of `share`; the loss is averaged over ranks in the second case."""
    optimizer = optimizer_of(model)
    losses = []
    for whole_tokens, whole_labels in batches():
        tokens, labels = (whole_tokens, whole_labels) if share is None else (whole_tokens[share], whole_labels[share])
        value = loss(model(tokens), labels)
        value.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        value = value.full_tensor() if isinstance(value, DTensor) else value
        value = value.detach().clone()
        if share is not None:
            dist.all_reduce(value, dist.ReduceOp.AVG)
        losses.append(value.item())
    return losses


def full(parameter: torch.Tensor) -> torch.Tensor:
    tensor = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return tensor.detach().cpu().double()


def difference(model: nn.Module, twin: nn.Module) -> float:
    """The largest difference of a parameter, relative to the largest value of its tensor."""
    worst = 0.0
    theirs = dict(twin.named_parameters())
    for name, parameter in model.named_parameters():
        other = theirs[name.replace("module.", "").replace("_orig_mod.", "")].detach().cpu().double()
        worst = max(worst, ((full(parameter) - other).abs().max() / other.abs().max()).item())
    return worst


def compare(
    model: nn.Module, share: slice | None, *, clip: bool = False, loss: Callable[..., torch.Tensor] = loss_of, blocks: int = 2
) -> Result:
    result = Result(losses=train(model, share, loss, clip))
    twin = make_model(blocks)
    result.expected = train(twin, clip=clip)
    result.parameters = difference(model, twin)
    return result


def my_share(ranks: int | None = None, rank: int | None = None) -> slice:
    ranks = ranks or dist.get_world_size()
    rank = dist.get_rank() if rank is None else rank
    rows = BATCH // ranks
    return slice(rank * rows, (rank + 1) * rows)


def maybe_compiled(model: nn.Module, compiled: bool) -> nn.Module:
    return torch.compile(model, backend="neuron") if compiled else model


def ddp(rank: int, compiled: bool = False, buckets_mb: float = 0.01) -> Result:
    start()
    # Dynamo cuts a graph at bucket boundaries, and wants buckets of a megabyte or more.
    options = {} if compiled else {"bucket_cap_mb": buckets_mb}
    model = nn.parallel.DistributedDataParallel(make_model(), device_ids=[rank], **options)
    result = compare(maybe_compiled(model, compiled), my_share(), clip=True)
    result.notes["backward_nanoseconds"] = model._get_ddp_logging_data()["avg_backward_compute_time"]
    result.notes["buckets"] = len(model._get_ddp_logging_data().get("rebuilt_bucket_sizes", "").split(","))
    return result


def _shard(model: Model, **options: Any) -> Model:
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    return model


def fsdp(rank: int, compiled: bool = False, reshard: bool = True) -> Result:
    start()
    model = _shard(make_model(), reshard_after_forward=reshard)
    model.blocks[0].set_modules_to_forward_prefetch([model.blocks[1]])
    if compiled:
        for block in model.blocks:
            block.compile(backend="neuron")
    return compare(model, my_share(), clip=True)


def hsdp(rank: int, compiled: bool = False) -> Result:
    start()
    mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = _shard(make_model(), mesh=mesh)
    if compiled:
        for block in model.blocks:
            block.compile(backend="neuron")
    return compare(model, my_share())


def fsdp_offload(rank: int) -> Result:
    join(60, "cpu:gloo,neuron:neuron")
    return compare(_shard(make_model(), offload_policy=CPUOffloadPolicy(pin_memory=True)), my_share())


def fsdp_mixed(rank: int) -> Result:
    """bfloat16 parameters and activations, float32 gradients: near the float32 twin, not equal to it."""
    start()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    result = compare(_shard(make_model(), mp_policy=policy), my_share(), loss=lambda logits, labels: loss_of(logits.float(), labels))
    result.notes["dtypes"] = "bfloat16"
    return result


def fsdp_states(rank: int, folder: str) -> dict[str, float]:
    """Full and sharded state dicts, and a checkpoint for another world size. Returns a checksum per parameter."""
    from torch.distributed.checkpoint import save
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_model_state_dict

    start()
    model = _shard(make_model())
    optimizer = optimizer_of(model)
    for tokens, labels in batches()[:3]:
        loss_of(model(tokens[my_share()]), labels[my_share()]).backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    sums = {name: full(parameter).abs().sum().item() for name, parameter in model.named_parameters()}
    if rank == 0:
        for name, value in whole.items():
            assert value.device.type == "cpu"
            assert math.isclose(value.double().abs().sum().item(), sums[name]), name
    other = _shard(Model().to("neuron"))
    set_model_state_dict(other, whole if rank == 0 else {}, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    for (name, mine), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.to_local().cpu(), theirs.to_local().cpu()), name
    model_state, optimizer_state = get_state_dict(model, optimizer)
    save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)
    dist.barrier()
    return sums


def fsdp_load(rank: int, folder: str) -> dict[str, float]:
    """Load the checkpoint of `fsdp_states`, whatever the number of ranks that wrote it."""
    from torch.distributed.checkpoint import load
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    start()
    model = _shard(Model().to("neuron"))
    optimizer = optimizer_of(model)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    momentum = optimizer.state[next(iter(model.parameters()))]["momentum_buffer"]
    assert full(momentum).abs().sum() > 0
    return {name: full(parameter).abs().sum().item() for name, parameter in model.named_parameters()}


def _block_plan() -> dict[str, Any]:
    plan: dict[str, Any] = {
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(),
        "feed.up": ColwiseParallel(),
        "feed.down": RowwiseParallel(),
    }
    return plan


def _parallelise(model: Model, mesh: Any) -> Model:
    for block in model.blocks:
        parallelize_module(block, mesh, _block_plan())
    parallelize_module(
        model, mesh, {"embedding": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate())}
    )
    return model


def tensor_parallel(rank: int, compiled: bool = False) -> Result:
    start()
    model = _parallelise(make_model(), init_device_mesh("neuron", (dist.get_world_size(),)))
    return compare(maybe_compiled(model, compiled), None)


def sequence_parallel(rank: int, compiled: bool = False) -> Result:
    start()
    mesh = init_device_mesh("neuron", (dist.get_world_size(),))
    model = make_model()
    for block in model.blocks:
        parallelize_module(
            block,
            mesh,
            {
                "norm1": SequenceParallel(),
                "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "attention.query": ColwiseParallel(),
                "attention.key": ColwiseParallel(),
                "attention.value": ColwiseParallel(),
                "attention.out": RowwiseParallel(output_layouts=Shard(1)),
                "norm2": SequenceParallel(),
                "feed": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                "feed.up": ColwiseParallel(),
                "feed.down": RowwiseParallel(output_layouts=Shard(1)),
            },
        )
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        },
    )
    # Norms are replicated; their gradients are sums over the ranks' parts of the sequence.
    return compare(maybe_compiled(model, compiled), None)


def loss_in_parallel(rank: int, compiled: bool = False) -> Result:
    start()
    mesh = init_device_mesh("neuron", (dist.get_world_size(),))
    model = make_model()
    for block in model.blocks:
        parallelize_module(block, mesh, _block_plan())
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        },
    )
    result = Result()
    optimizer = optimizer_of(model)
    forward = maybe_compiled(model, compiled)
    for tokens, labels in batches():
        with loss_parallel():
            value = F.cross_entropy(forward(tokens).flatten(0, 1), labels.flatten(0, 1))
            value.backward()
        optimizer.step()
        optimizer.zero_grad()
        result.losses.append(full(value).item())
    twin = make_model()
    result.expected = train(twin)
    result.parameters = difference(model, twin)
    return result


def tensor_parallel_fsdp(rank: int, compiled: bool = False) -> Result:
    start()
    mesh = init_device_mesh("neuron", (2, 2), mesh_dim_names=("fsdp", "tp"))
    model = _shard(_parallelise(make_model(), mesh["tp"]), mesh=mesh["fsdp"])
    if compiled:
        for block in model.blocks:
            block.compile(backend="neuron")
    return compare(model, my_share(2, mesh["fsdp"].get_local_rank()))


class Part(nn.Module):
    """A contiguous part of the model: the first one has the embedding, the last one the head."""

    def __init__(self, model: Model, part: int, parts: int) -> None:
        super().__init__()
        each = len(model.blocks) // parts
        self.embedding = model.embedding if part == 0 else None
        self.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in range(part * each, (part + 1) * each)})
        self.norm = model.norm if part == parts - 1 else None
        self.head = model.head if part == parts - 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if self.embedding is None else self.embedding(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def pipeline(rank: int, schedule: str, compiled: bool = False) -> Result:
    from torch.distributed import pipelining

    start()
    size = dist.get_world_size()
    device = torch.device("neuron", torch.neuron.current_device())
    part = Part(make_model(4), rank, size)
    if compiled:
        part.compile(backend="neuron")
    stage = pipelining.PipelineStage(part, rank, size, device)
    runner = getattr(pipelining, schedule)(stage, n_microbatches=4, loss_fn=loss_of)
    optimizer = optimizer_of(part)
    result = Result()
    for tokens, labels in batches():
        losses: list[torch.Tensor] = []
        if rank == 0:
            runner.step(tokens)
        elif rank == size - 1:
            runner.step(target=labels, losses=losses)
        else:
            runner.step()
        optimizer.step()
        optimizer.zero_grad()
        value = torch.stack([loss.detach() for loss in losses]).mean() if losses else torch.zeros((), device="neuron")
        dist.broadcast(value, size - 1)
        result.losses.append(value.item())
    twin = make_model(4)
    result.expected = train(twin)
    result.parameters = difference(part, twin)
    return result


def two_stages_per_rank(rank: int) -> Result:
    """The interleaved schedule: stages r and r + size on rank r."""
    from torch.distributed import pipelining

    start()
    size = dist.get_world_size()
    device = torch.device("neuron", torch.neuron.current_device())
    model = make_model(4)
    parts = [Part(model, rank + k * size, 2 * size) for k in range(2)]
    stages = [pipelining.PipelineStage(part, rank + k * size, 2 * size, device) for k, part in enumerate(parts)]
    runner = pipelining.ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=loss_of)
    optimizers = [optimizer_of(part) for part in parts]
    result = Result()
    for tokens, labels in batches():
        losses: list[torch.Tensor] = []
        if rank == 0:
            runner.step(tokens)
        else:
            runner.step(target=labels, losses=losses)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        value = torch.stack([loss.detach() for loss in losses]).mean() if losses else torch.zeros((), device="neuron")
        dist.broadcast(value, size - 1)
        result.losses.append(value.item())
    twin = make_model(4)
    result.expected = train(twin)
    result.parameters = max(difference(part, twin) for part in parts)
    return result


def functional_in_graph(rank: int) -> list[str]:
    """Functional and ordinary collectives inside compiled graphs equal eager ones."""
    import torch.distributed._functional_collectives as functional

    start()
    size = dist.get_world_size()

    def body(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        every = functional.all_gather_tensor(x, 0, dist.group.WORLD)
        part = functional.reduce_scatter_tensor(every + 1, "sum", 0, dist.group.WORLD)
        exchanged = functional.all_to_all_single(every, None, None, dist.group.WORLD)
        first = functional.broadcast(x, 0, dist.group.WORLD)
        return total + 1, every, part, exchanged * 2, first

    def inplace(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        gathered = x.new_empty(x.shape[0] * size)
        dist.all_gather_into_tensor(gathered, x)
        return gathered + 1

    faults = []
    x = torch.arange(6.0, device="neuron") + rank
    for name, function in {"functional": body, "in place": inplace}.items():
        expected, actual = function(x.clone()), torch.compile(function, backend="neuron", fullgraph=True)(x.clone())
        pairs = zip(expected, actual, strict=True) if isinstance(expected, tuple) else [(expected, actual)]
        for index, (a, b) in enumerate(pairs):
            if not torch.equal(a.cpu(), b.cpu()):
                faults.append(f"{name} {index}: {a.cpu()} {b.cpu()}")
    return faults


def context_in_parallel(rank: int) -> str:
    """What attention says under context parallelism."""
    from torch.distributed.tensor.experimental import context_parallel

    start()
    mesh = init_device_mesh("neuron", (dist.get_world_size(),))
    query, key, value = (torch.randn(2, 4, 16, 8, device="neuron") for _ in range(3))
    try:
        with context_parallel(mesh, buffers=[query, key, value], buffer_seq_dims=[2, 2, 2]):
            F.scaled_dot_product_attention(query, key, value, is_causal=True)
    except NotImplementedError as error:
        return str(error)
    return "it works"
