# torchrun --nproc_per_node=2 examples/distributed/train_sequence_parallel.py
"""Tensor and sequence parallelism with PyTorch's plans, and a loss over a cut vocabulary.

Between the blocks each rank holds its part of the sequence only; attention and feed-forward gather it, and scatter their sums.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from shared import Blocks, need_ranks, say
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

WIDTH, HEADS, VOCABULARY = 128, 4, 256


class Attention(nn.Module):
    """Causal attention over `heads` of the rank's own."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, WIDTH] to the same."""
        query, key, value = (layer(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and around a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, WIDTH] to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))


class Model(nn.Module):
    """Two blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [batch, length] to [batch, length, VOCABULARY]."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def spread(model: nn.Module, ranks: int) -> nn.Module:
    """Cut the model over the ranks: sequences between the layers, features within."""
    mesh = init_device_mesh("neuron", (ranks,), mesh_dim_names=("tp",))
    gather = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    for index in range(2):
        block = f"blocks.{index}"
        plan |= {
            f"{block}.norm1": SequenceParallel(),
            f"{block}.norm2": SequenceParallel(),
            f"{block}.attention": gather,
            f"{block}.attention.query": ColwiseParallel(),
            f"{block}.attention.key": ColwiseParallel(),
            f"{block}.attention.value": ColwiseParallel(),
            f"{block}.attention.out": RowwiseParallel(output_layouts=Shard(1)),
            f"{block}.wide": ColwiseParallel(input_layouts=Shard(1)),
            f"{block}.narrow": RowwiseParallel(output_layouts=Shard(1)),
        }
    return parallelize_module(model, mesh, plan)


def main() -> None:
    """Cut the model and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps (default: %(default)s)")
    options = parser.parse_args()
    ranks = need_ranks((2, 4))

    dist.init_process_group("neuron")
    torch.manual_seed(0)
    model = spread(Model().to("neuron"), ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    data, losses = Blocks(), []
    for step in range(options.steps):
        tokens = data.batch(step, 8).to("neuron")
        optimizer.zero_grad()
        with loss_parallel():
            logits = model(tokens[:, :-2])  # a length that the ranks can divide
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:-1].flatten())
            loss.backward()
        optimizer.step()
        losses.append(float(loss.full_tensor()))
    say(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
