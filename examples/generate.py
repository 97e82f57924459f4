"""The generation example of transformers' "AWS Trainium" page, on the device `neuron`, with a report of what ran where and how fast.

The model is a name on the hub or a folder. Without `--model` it is a small one that `train_tiny.py` makes (once).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import train_tiny
from neuron_report import compiled_graphs, describe, line, require_neuron
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

PROMPT = "It is a truth universally acknowledged, that"


def timed(generate: Callable[[], torch.Tensor], prompt_length: int) -> tuple[torch.Tensor, float]:
    """Run `generate` and return its tokens (int64[1, length]) and how many new ones it made per second."""
    torch.neuron.synchronize()
    start = time.perf_counter()
    outputs = generate()
    torch.neuron.synchronize()
    return outputs, (outputs.shape[1] - prompt_length) / (time.perf_counter() - start)


def run(model_id: str, prompt: str, max_new_tokens: int, compiled: bool, sample: bool) -> None:
    """Load `model_id` on `neuron`, generate from `prompt` on the CPU, and print the text and the report."""
    # What a user writes. The inputs stay on the CPU: generate() moves what the model needs.
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    model = AutoModelForCausalLM.from_pretrained(model_id, dtype="bfloat16", device_map="neuron")
    inputs = tokenizer(prompt, return_tensors="pt")

    def generate(disable_compile: bool = False) -> torch.Tensor:
        set_seed(0)  # matters for --sample only
        outputs: torch.Tensor = model.generate(
            **inputs,
            max_new_tokens=max_new_tokens,
            do_sample=sample,
            cache_implementation="static",
            disable_compile=disable_compile,
        )
        return outputs

    line("model", f"{type(model).__name__}, {model.num_parameters():,} parameters, {model.dtype} on {model.device}".replace("torch.", ""))
    line("inputs", describe(inputs["input_ids"]))
    prompt_length = inputs["input_ids"].shape[1]

    before = compiled_graphs()
    outputs, first = timed(lambda: generate(disable_compile=not compiled), prompt_length)
    graphs = compiled_graphs() - before
    line("output", describe(outputs))
    if compiled:
        line("compiled", f"{graphs} graph(s) of the decode step by the backend neuron" if graphs else "nothing: the forward ran eagerly")
    else:
        line("compiled", f"{graphs} graphs: switched off with --no-compile")
    line("memory", f"{torch.neuron.memory_allocated(model.device) / 2**20:.1f} MiB allocated on {model.device}")

    line("speed", f"first call  {first:8.1f} tokens/s" + (" (compiles)" if graphs else ""))
    generate(disable_compile=True)
    _, eager = timed(lambda: generate(disable_compile=True), prompt_length)
    line("", f"eager       {eager:8.1f} tokens/s")
    if compiled:
        outputs, fast = timed(generate, prompt_length)
        again = compiled_graphs() - before - graphs
        line("", f"compiled    {fast:8.1f} tokens/s ({fast / eager:.2f} x eager, {again} graphs compiled again)")

    print()
    print(tokenizer.decode(outputs[0], skip_special_tokens=True))


def main() -> None:
    """Read the command line, make the demo model if it is needed, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="name on the hub, or folder (default: the demo model, trained first if missing)")
    parser.add_argument("--prompt", default=PROMPT, help="text to continue (default: %(default)r)")
    parser.add_argument("--max-new-tokens", type=int, default=120, help="tokens to add (default: %(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="run the forward eagerly (disable_compile=True)")
    parser.add_argument("--sample", action="store_true", help="sample, with a fixed seed, instead of taking the likeliest token")
    options = parser.parse_args()
    if options.max_new_tokens < 1:
        parser.error("--max-new-tokens must be positive")
    if not options.prompt:
        parser.error("--prompt must not be empty")

    line("neuron", require_neuron())
    model_id = options.model or str(train_tiny.ensure_model())
    line("from", model_id)
    run(model_id, options.prompt, options.max_new_tokens, not options.no_compile, options.sample)


if __name__ == "__main__":
    main()
