"""What several Hugging Face test files share: the device under test, comparisons, subprocesses, a tokenizer trained on the spot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

TEST_DEVICE = os.environ.get("SOFTNEURON_TEST_DEVICE", "neuron")

# How much further than the CPU's own bfloat16 result the device's may be from a float32 reference.
BFLOAT16_SLACK = 1.5

# Herman Melville, "Moby-Dick" (1851), first paragraph: public domain.
CORPUS = """Call me Ishmael. Some years ago - never mind how long precisely - having little or no money in my purse, and nothing
particular to interest me on shore, I thought I would sail about a little and see the watery part of the world. It is a way I
have of driving off the spleen and regulating the circulation. Whenever I find myself growing grim about the mouth; whenever
it is a damp, drizzly November in my soul; whenever I find myself involuntarily pausing before coffin warehouses, and bringing
up the rear of every funeral I meet; and especially whenever my hypos get such an upper hand of me, that it requires a strong
moral principle to prevent me from deliberately stepping into the street, and methodically knocking people's hats off - then, I
account it high time to get to sea as soon as I can. This is my substitute for pistol and ball. With a philosophical flourish
Cato throws himself upon his sword; I quietly take to the ship. There is nothing surprising in this. If they but knew it, almost
all men in their degree, some time or other, cherish very nearly the same feelings towards the ocean with me."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + ': ' + message['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant: ' }}{% endif %}"
)


def make_tokenizer(vocab_size: int = 400) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE tokenizer on `CORPUS`: at most `vocab_size` tokens; pad, bos, eos, mask are 0 to 3; pads on the left."""
    special = ["<pad>", "<s>", "</s>", "<mask>"]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    core.train_from_iterator(CORPUS.splitlines(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        mask_token="<mask>",
        padding_side="left",
        model_max_length=256,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def distance(actual: torch.Tensor, reference: torch.Tensor) -> float:
    """Euclidean distance of two tensors of one shape, relative to the norm of the reference; computed on the CPU in float64."""
    reference = reference.detach().cpu().double()
    return float((actual.detach().cpu().double() - reference).norm() / reference.norm())


def assert_close_as_cpu(actual: torch.Tensor, cpu: torch.Tensor, reference: torch.Tensor) -> None:
    """Holds the bfloat16 rule: `actual` is finite and at most `BFLOAT16_SLACK` times as far from the float32 `reference` as the CPU is."""
    assert torch.isfinite(actual).all(), "the device produced a value that is not finite"
    on_device, on_cpu = distance(actual, reference), distance(cpu, reference)
    assert on_cpu > 0, "the CPU's bfloat16 result equals float32: this comparison proves nothing"
    assert on_device <= BFLOAT16_SLACK * on_cpu, f"distance to float32: device {on_device:.3e}, CPU {on_cpu:.3e}"


def assert_all_on(model: PreTrainedModel, device: torch.device) -> None:
    """Every parameter and buffer reports exactly `device`, index included."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    strays = {name: str(tensor.device) for name, tensor in tensors.items() if tensor.device != device}
    assert tensors and not strays, f"not on {device}: {strays}"


def assert_same_weights(actual: torch.nn.Module, expected: torch.nn.Module, rtol: float = 0.0, atol: float = 0.0) -> None:
    """All entries of two state dicts agree: bit for bit, unless a tolerance is given."""
    left, right = actual.state_dict(), expected.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(tensor.cpu(), right[name].cpu(), rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")


def greedy(model: PreTrainedModel, inputs: dict[str, torch.Tensor], new_tokens: int = 16, **options: Any) -> torch.Tensor:
    """Greedy continuation, int64 [batch, length]: on the device of the inputs (asserted), returned on the CPU."""
    output = model.generate(**inputs, do_sample=False, max_new_tokens=new_tokens, **options)
    expected = inputs["input_ids"].device
    assert output.device == expected, f"inputs were on {expected}, the output is on {output.device}"
    return output.cpu()


def run_python(
    script: str, env: dict[str, str] | None = None, timeout: float = 240, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a new interpreter; a failure shows its output.

    Args:
        script: Python source; common indentation is removed.
        env: added to this process's environment.
        timeout: seconds.
        check: asserts that the exit code is 0.
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check:
        assert result.returncode == 0, f"exit code {result.returncode}\n--- stdout\n{result.stdout}\n--- stderr\n{result.stderr}"
    return result


def run_json(script: str, env: dict[str, str] | None = None, timeout: float = 240) -> Any:
    """Runs a script (see `run_python`) and parses the last line it prints as JSON."""
    return json.loads(run_python(script, env, timeout).stdout.strip().splitlines()[-1])


def compiled_graphs() -> int:
    """How many graphs the `neuron` backend compiled since the counters were cleared."""
    return int(torch._dynamo.utils.counters["neuron"]["compiled_graphs"])


def count_calls(function: Callable[..., Any], log: list[Any]) -> Callable[..., Any]:
    """Wraps `function` so that every call's keyword arguments are appended to `log`."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        log.append(kwargs)
        return function(*args, **kwargs)

    return counted


def package_parent() -> Path:
    """Folder that holds the package `hf`; for subprocesses that import it."""
    return Path(__file__).resolve().parent.parent
