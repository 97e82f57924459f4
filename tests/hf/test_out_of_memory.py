"""More memory than the device has, through Hugging Face: recognised, given back, retried with less. Each test simulates a small device."""

from __future__ import annotations

from pathlib import Path

import pytest

from .helpers import package_parent, run_json
from .model_zoo import make_model

pytestmark = pytest.mark.neuron_only

SMALL_DEVICE = {"SOFTNEURON_HBM_BYTES": "64M"}


def test_executable_batch_size() -> None:
    """accelerate's `find_executable_batch_size` recognises the error, frees, retries with less: 4 MiB a row, 248 MiB fit."""
    script = """
    import json, torch
    from accelerate.utils import find_executable_batch_size
    tried = []

    @find_executable_batch_size(starting_batch_size=128)
    def train(batch_size):
        tried.append(batch_size)
        return len(torch.ones(batch_size, 1 << 20, device="neuron"))

    rows = train()
    print(json.dumps([tried, rows, torch.neuron.memory_allocated(), torch.neuron.memory_stats()["num_ooms"]]))
    """
    tried, rows, allocated, ooms = run_json(script, env={"SOFTNEURON_HBM_BYTES": "256M"})
    assert tried[0] == 128 and tried == sorted(tried, reverse=True)
    assert rows == tried[-1] and 50 <= rows <= 64, "what fits must be found, and not much less"
    assert allocated == 0 and ooms == len(tried) - 1


def test_trainer_finds_a_batch_size(tmp_path: Path) -> None:
    """`auto_find_batch_size=True` on a small device: training goes on with a smaller batch and learns."""
    script = f"""
    import sys, json, torch
    sys.path.insert(0, {str(package_parent())!r})
    from pathlib import Path
    from hf.training import curve, make_trainer
    trainer = make_trainer(Path({str(tmp_path)!r}), "neuron", auto_find_batch_size=True, per_device_train_batch_size=256, max_steps=4)
    trainer.train()
    print(json.dumps([trainer._train_batch_size, trainer.state.global_step, curve(trainer), torch.neuron.max_memory_allocated()]))
    """
    batch, steps, losses, peak = run_json(script, env=SMALL_DEVICE)
    assert 4 <= batch < 256 and steps == 4
    assert losses[-1] < losses[0]
    assert peak <= 64 << 20


def test_model_larger_than_the_device(tmp_path: Path) -> None:
    """Loading stops with `torch.OutOfMemoryError`, gives back what it had taken, and a smaller model loads afterwards."""
    make_model("llama").save_pretrained(tmp_path / "small")
    script = f"""
    import sys, json, gc, torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
    sys.path.insert(0, {str(package_parent())!r})
    from hf.model_zoo import DECODER
    big = {str(tmp_path / "big")!r}
    size = {{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 6}}
    LlamaForCausalLM(LlamaConfig(**{{**DECODER, **size}})).save_pretrained(big)
    try:
        AutoModelForCausalLM.from_pretrained(big, device_map="neuron")
        message = None
    except torch.OutOfMemoryError as error:
        message = str(error)
    gc.collect()
    torch.neuron.empty_cache()
    left = torch.neuron.memory_allocated(), torch.neuron.memory_reserved()
    small = AutoModelForCausalLM.from_pretrained({str(tmp_path / "small")!r}, device_map="neuron")
    print(json.dumps([message, left, str(small.device)]))
    """
    message, left, device = run_json(script, env=SMALL_DEVICE)
    assert message is not None and " out of memory." in message and "neuron:0" in message and "64" in message
    assert left == [0, 0]
    assert device == "neuron:0"
