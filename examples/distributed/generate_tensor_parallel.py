# torchrun --nproc_per_node=2 examples/distributed/generate_tensor_parallel.py
"""Tensor parallel generation: every layer is cut over the ranks, and all ranks write the same text.

The demo model has random weights, so the text means nothing; `--model` takes any folder or hub name whose tokens are bytes.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from shared import decode, demo_model, encode, need_ranks, say
from transformers import AutoModelForCausalLM
from transformers.distributed.configuration_utils import DistributedConfig


def main() -> None:
    """Load onto the ranks, generate, compare the ranks and one core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder or hub name (default: a tiny Qwen3 with random weights)")
    parser.add_argument("--prompt", default="Mr. Darcy was ", help="text to go on from (default: %(default)r)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to write (default: %(default)s)")
    options = parser.parse_args()
    ranks = need_ranks()
    model_id = options.model or demo_model()

    model = AutoModelForCausalLM.from_pretrained(model_id, distributed_config=DistributedConfig(tp_size=ranks))
    weight = model.model.layers[0].self_attn.q_proj.weight
    say(f"q_proj   {list(weight.shape)} in all, {list(weight.to_local().shape)} on each of {ranks} ranks")

    inputs = encode(options.prompt)  # stays on the CPU
    output = model.generate(inputs, max_new_tokens=options.tokens, do_sample=False)
    say(f"text     {decode(output[0])}")

    everyone: list[torch.Tensor | None] = [None] * ranks
    dist.all_gather_object(everyone, output)
    same = all(torch.equal(output, other) for other in everyone if other is not None)
    say(f"ranks    {'agree' if same else 'DIFFER'}")
    if dist.get_rank() == 0:
        single = AutoModelForCausalLM.from_pretrained(model_id, device_map="neuron")
        alone = single.generate(inputs, max_new_tokens=options.tokens, do_sample=False)
        say(f"one core {'writes the same' if torch.equal(alone, output) else 'WRITES SOMETHING ELSE'}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
