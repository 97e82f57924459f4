"""The generation example of transformers' "AWS Trainium" page, on the device `neuron`, with a report of what ran where and how fast.

The model is a name on the hub or a folder. Without `--model` it is a small one that `train_tiny.py` makes (once).
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
import train_tiny
from neuron_report import compiled_graphs, describe, line, require_neuron
from transformers import AutoModelForCausalLM, AutoTokenizer, BatchEncoding, GenerationMixin, set_seed

PROMPT = "It is a truth universally acknowledged, that"


class Stopwatch:
    """Turns the time since it was made into tokens per second."""

    def __init__(self) -> None:
        torch.neuron.synchronize()
        self.start = time.perf_counter()

    def tokens_per_second(self, tokens: int) -> float:
        """Return the rate of `tokens` made since the start."""
        torch.neuron.synchronize()
        return tokens / (time.perf_counter() - self.start)


def run(model_id: str, prompt: str, max_new_tokens: int, sample: bool, disable_compile: bool) -> None:
    """Load `model_id` on `neuron`, generate from `prompt` on the CPU, and print the report and the text."""
    # The page's snippet. The inputs stay on the CPU: generate() moves what the model needs, and compiles the decode step by itself.
    tokenizer = AutoTokenizer.from_pretrained(model_id)
    model = AutoModelForCausalLM.from_pretrained(model_id, dtype="bfloat16", device_map="neuron")
    inputs = tokenizer(prompt, return_tensors="pt")
    extra: dict[str, Any] = ({"temperature": 0.8} if sample else {}) | ({"disable_compile": True} if disable_compile else {})
    before = compiled_graphs()
    set_seed(0)  # matters for --sample only
    watch = Stopwatch()
    outputs = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=sample, cache_implementation="static", **extra)
    first = watch.tokens_per_second(outputs.shape[1] - inputs["input_ids"].shape[1])
    text = tokenizer.decode(outputs[0], skip_special_tokens=True)

    line(
        "model",
        f"{type(model).__name__}, {model.num_parameters():,} parameters, {str(model.dtype).removeprefix('torch.')} on {model.device}",
    )
    line("inputs", describe(inputs["input_ids"]))
    line("output", describe(outputs))
    graphs = compiled_graphs() - before
    if disable_compile:
        line("compiled", f"{graphs} graphs: switched off with --no-compile")
    else:
        line("compiled", f"{graphs} graph(s) of the decode step by the backend neuron" if graphs else "nothing: the forward ran eagerly")
    line("memory", f"{torch.neuron.memory_allocated(model.device) / 2**20:.1f} MiB allocated on {model.device}")

    # The same call again, warm: run operator by operator, and compiled.
    settings = {"max_new_tokens": max_new_tokens, "do_sample": sample, "cache_implementation": "static", **extra}
    line("speed", f"first call  {first:8.1f} tokens/s" + (" (compiles)" if graphs else ""))
    eager = warm_speed(model, inputs, {**settings, "disable_compile": True})
    line("", f"eager       {eager:8.1f} tokens/s")
    if graphs:
        fast = warm_speed(model, inputs, settings)
        again = compiled_graphs() - before - graphs
        line("", f"compiled    {fast:8.1f} tokens/s ({fast / eager:.2f} x eager, {again} graphs compiled again)")
    print(f"\n{text}")


def warm_speed(model: GenerationMixin, inputs: BatchEncoding, settings: dict[str, Any]) -> float:
    """Return the tokens per second of the fastest of three generate() calls, fewer if they take longer than ten seconds."""
    best = 0.0
    start = time.monotonic()
    for _ in range(3):
        set_seed(0)
        watch = Stopwatch()
        outputs = model.generate(**inputs, **settings)
        best = max(best, watch.tokens_per_second(outputs.shape[1] - inputs["input_ids"].shape[1]))
        if time.monotonic() - start > 10:
            break
    return best


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
    line("from", os.path.relpath(model_id) if os.path.isdir(model_id) else model_id)
    try:
        run(model_id, options.prompt, options.max_new_tokens, options.sample, options.no_compile)
    except OSError as error:  # no such model, or the hub cannot be reached: transformers says which
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
