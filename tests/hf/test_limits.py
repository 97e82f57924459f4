"""What unmodified Hugging Face libraries do not do on this device: each limit as it is today, so that a change of theirs is noticed.

None of these can be lifted from the device's side without patching the libraries. `docs` and README point users to the way round.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from peft.utils import infer_device
from transformers import AutoModelForCausalLM, BertConfig, BertModel, pipeline

from .helpers import compiled_graphs, greedy, make_tokenizer
from .model_zoo import make_inputs, make_model
from .training import train_on

pytestmark = pytest.mark.neuron_only


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A tiny model on disk."""
    make_model("qwen3").save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("strategy", ["auto", "balanced", "sequential"])
def test_device_map_auto_stays_on_cpu(checkpoint: Path, strategy: str) -> None:
    """accelerate's table of memory knows no neuron: the model stays on the CPU. Say `device_map="neuron"`."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, device_map=strategy)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert torch.equal(greedy(model, make_inputs("qwen3")), greedy(make_model("qwen3"), make_inputs("qwen3")))


def test_pipeline_default_stays_on_cpu() -> None:
    """Without a device, and with an integer, a pipeline uses the CPU. Say `device="neuron"`."""
    model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=300))
    for options in ({}, {"device": 0}):
        pipe = pipeline("feature-extraction", model=model, tokenizer=make_tokenizer(300), **options)
        assert pipe.device.type == "cpu"
        assert len(pipe("Call me Ishmael.")[0]) > 1


def test_pipeline_moves_a_model_back(checkpoint: Path) -> None:
    """A model that is already on the device is moved to the CPU by a pipeline that was not told the device."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, device_map="neuron")
    assert model.device.type == "neuron"
    pipe = pipeline("text-generation", model=model, tokenizer=make_tokenizer(256))
    assert pipe.model.device.type == "cpu"


def test_peft_infers_cpu() -> None:
    """peft loads adapters on the CPU and moves them with the model."""
    assert infer_device() == "cpu"


def test_fp16_trainer_is_refused(tmp_path: Path) -> None:
    """accelerate allows float16 mixed precision on a list of devices without this one. Use bf16."""
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in"):
        train_on("neuron", tmp_path, fp16=True, max_steps=1)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_encoder_inputs_are_not_moved(name: str) -> None:
    """`generate` moves what a decoder consumes, not what its encoder consumes: on any accelerator the user moves those."""
    with pytest.raises(RuntimeError, match="same device"):
        make_model(name).to("neuron").generate(**make_inputs(name), max_new_tokens=2)


def test_images_are_not_moved() -> None:
    """Nor the input of a vision tower."""
    with pytest.raises(RuntimeError, match="FloatTensor"):
        make_model("llava").to("neuron").generate(**make_inputs("llava"), max_new_tokens=2)


def test_assisted_decoding_needs_inputs_on_the_device() -> None:
    """Assisted decoding does not move its inputs either."""
    model = make_model("qwen3").to("neuron")
    with pytest.raises(RuntimeError, match="same device"):
        model.generate(**make_inputs("qwen3", batch=1, padded=False), assistant_model=copy.deepcopy(model), max_new_tokens=4)


def test_offloaded_cache_is_cuda_only() -> None:
    """transformers' offloaded cache names `torch.cuda` in its code."""
    with pytest.raises(AssertionError, match="CUDA"):
        greedy(make_model("qwen3").to("neuron"), make_inputs("qwen3"), cache_implementation="offloaded")


@pytest.mark.usefixtures("fresh_compiler")
def test_sliding_static_cache_recompiles_until_dynamo_gives_up() -> None:
    """A sliding static cache counts in a Python integer: with static shapes each step is a new graph, up to Dynamo's limit, then eager.
    The tokens are right all the same. Say `disable_compile=True` for these models."""
    cpu_model = make_model("mistral")
    inputs = make_inputs("mistral")
    expected = greedy(cpu_model, inputs, 16)
    with torch._dynamo.config.patch(recompile_limit=3):
        assert torch.equal(greedy(cpu_model.to("neuron"), inputs, 16, cache_implementation="static"), expected)
    assert compiled_graphs() == 3


def test_checkpoints_hold_no_device_generator(tmp_path: Path) -> None:
    """The Trainer saves the random state of the CPU (and cuda, npu, ...): after a resume, dropout on the device draws other numbers."""
    train_on("neuron", tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    state = torch.load(tmp_path / "checkpoint-1" / "rng_state.pth", weights_only=False)
    assert set(state) == {"python", "numpy", "cpu"}
