# torchrun --nproc_per_node=2 examples/distributed/train_ddp.py
"""Plain data parallelism: every rank holds the model, gradients are averaged by `DistributedDataParallel`."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from shared import Blocks, demo_model, need_ranks, say
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM


def main() -> None:
    """Wrap and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder or hub name (default: a tiny Qwen3 with random weights)")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help='torch.compile(backend="neuron")')
    options = parser.parse_args()
    ranks = need_ranks()
    model_id = options.model or demo_model()

    dist.init_process_group("neuron")
    rank = dist.get_rank()
    model = AutoModelForCausalLM.from_pretrained(model_id).to("neuron")  # `neuron` is the core of this rank
    say(f"devices: rank 0 of {ranks} on {model.device}")
    parallel = DistributedDataParallel(model, device_ids=[torch.neuron.current_device()])
    step_model = torch.compile(parallel, backend="neuron") if options.compile else parallel
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=3e-3)
    data, losses = Blocks(), []
    for step in range(options.steps):
        tokens = data.batch(step * ranks + rank, 4).to("neuron")
        optimizer.zero_grad()
        loss = step_model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(float(mean))
    say(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")

    total = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
    sums = torch.empty(ranks, dtype=torch.float64, device="neuron")
    dist.all_gather_into_tensor(sums, total.reshape(1))
    say(f"replicas {'agree' if bool((sums == sums[0]).all()) else 'DIFFER'}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
