# torchrun --nproc_per_node=2 examples/distributed/train_pipeline.py
"""Pipeline parallelism: each rank holds some of the layers; micro-batches flow through them by the schedule GPipe or 1F1B."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from shared import Blocks, need_ranks, say
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

WIDTH, VOCABULARY = 128, 256


def layers(rank: int, ranks: int) -> nn.Module:
    """Return the part of the model that belongs to `rank`: embedding at the first, head at the last, two layers each."""
    parts: list[nn.Module] = [nn.Embedding(VOCABULARY, WIDTH)] if rank == 0 else []
    for _ in range(2):
        parts += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)]
    if rank == ranks - 1:
        parts.append(nn.Linear(WIDTH, VOCABULARY))
    return nn.Sequential(*parts)


def next_byte_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Cross entropy of [batch, length, VOCABULARY] against the following bytes of int64 [batch, length]."""
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    """Build this rank's stage and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="1f1b", help="(default: %(default)s)")
    parser.add_argument("--microbatches", type=int, default=4, help="parts of a batch (default: %(default)s)")
    options = parser.parse_args()
    ranks = need_ranks()

    dist.init_process_group("neuron")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    device = torch.device("neuron", torch.neuron.current_device())
    module = layers(rank, ranks).to(device)
    stage = PipelineStage(module, rank, ranks, device)
    schedule_class = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[options.schedule]
    schedule = schedule_class(stage, n_microbatches=options.microbatches, loss_fn=next_byte_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    data, means = Blocks(), []
    for step in range(options.steps):
        tokens = data.batch(step, 4 * options.microbatches).to(device)
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        schedule.step(*([tokens] if rank == 0 else []), **({"target": tokens, "losses": losses} if rank == ranks - 1 else {}))
        optimizer.step()
        mean = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=device)
        dist.broadcast(mean, src=ranks - 1)
        means.append(float(mean))
    say(f"stages {ranks}, schedule {options.schedule}, {options.microbatches} micro-batches")
    say(f"loss {means[0]:.3f} -> {means[-1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
