# torchrun --nproc_per_node=2 examples/distributed/train_expert_parallel.py
"""Expert parallelism: each rank holds half of a Mixtral's experts and its own batch; tokens travel to their experts by all-to-all."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from shared import Blocks, demo_model, need_ranks, say
from transformers import AutoModelForCausalLM
from transformers.distributed.configuration_utils import DistributedConfig


def main() -> None:
    """Spread the experts and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder or hub name (default: a tiny Mixtral with random weights)")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps (default: %(default)s)")
    options = parser.parse_args()
    ranks = need_ranks()
    model_id = options.model or demo_model("mixtral")

    config = DistributedConfig(fsdp_size=ranks, ep_size=ranks)
    model = AutoModelForCausalLM.from_pretrained(model_id, distributed_config=config)
    experts = model.model.layers[0].mlp.experts.gate_up_proj
    say(f"experts  {experts.shape[0]} in all, {experts.to_local().shape[0]} on each of {ranks} ranks")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    data, losses = Blocks(), []
    for step in range(options.steps):
        tokens = data.batch(step * ranks + dist.get_rank(), 4).to("neuron")
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(float(mean))
    say(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
