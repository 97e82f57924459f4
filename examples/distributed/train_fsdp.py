# torchrun --nproc_per_node=2 examples/distributed/train_fsdp.py
"""FSDP2 with PyTorch alone: `fully_shard` on every layer, bfloat16 compute, float32 reduction, a sharded checkpoint.

The checkpoint is written by all ranks at once (torch.distributed.checkpoint) and read into a second model.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from shared import Blocks, demo_model, need_ranks, say
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, PreTrainedModel


def sharded(model_id: str) -> PreTrainedModel:
    """Return the model with each layer's parameters spread over all ranks."""
    model = AutoModelForCausalLM.from_pretrained(model_id).to("neuron")
    mesh = init_device_mesh("neuron", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def main() -> None:
    """Shard, train, save, load again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder or hub name (default: a tiny Qwen3 with random weights)")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps (default: %(default)s)")
    options = parser.parse_args()
    ranks = need_ranks()
    model_id = options.model or demo_model()

    dist.init_process_group("neuron")
    rank = dist.get_rank()
    model = sharded(model_id)
    say(f"memory {torch.neuron.memory_allocated() / 2**20:.1f} MiB a rank")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data, losses = Blocks(), []
    for step in range(options.steps):
        tokens = data.batch(step * ranks + rank, 4).to("neuron")
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(float(mean))
    say(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")

    folder = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    dcp.save(model.state_dict(), checkpoint_id=folder[0])
    again = sharded(model_id)
    state = again.state_dict()
    dcp.load(state, checkpoint_id=folder[0])
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    same = all(torch.equal(a.to_local(), b.to_local()) for a, b in pairs)
    say(f"checkpoint {'read back, bit for bit' if same else 'DIFFERS'}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
