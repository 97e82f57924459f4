"""`from_pretrained` onto the device: placement, bits, threads, shards, memory, and saving back."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from .helpers import TEST_DEVICE, assert_all_on, assert_same_weights, greedy, run_json
from .model_zoo import DECODER, make_inputs, make_model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 in bfloat16, one safetensors file."""
    folder = tmp_path_factory.mktemp("checkpoint")
    make_model("qwen3").bfloat16().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny mixture of experts in at least five safetensors files: experts are stacked while loading."""
    folder = tmp_path_factory.mktemp("sharded")
    make_model("qwen3_moe").bfloat16().save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) >= 5
    return folder


def assert_bits_of_file(model: PreTrainedModel, folder: Path) -> None:
    """Every tensor of the safetensors file is in the model with the same bits."""
    state = model.state_dict()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(state)
        for name in file.keys():  # noqa: SIM118 (safe_open is no dict)
            stored = file.get_tensor(name)
            assert stored.dtype == state[name].dtype
            assert torch.equal(stored.view(torch.uint8), state[name].cpu().view(torch.uint8)), name


def test_device_map_string(checkpoint: Path, device: str, indexed_device: torch.device) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16", device_map=device)
    assert model.device == indexed_device
    assert_all_on(model, indexed_device)
    assert_bits_of_file(model, checkpoint)


@pytest.mark.neuron_only
def test_device_map_integer(checkpoint: Path) -> None:
    """An integer in a device map means a core of the accelerator, as with CUDA."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16", device_map={"": 2})
    assert_all_on(model, torch.device("neuron", 2))
    assert_bits_of_file(model, checkpoint)
    inputs = make_inputs("qwen3")
    cpu = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32")
    assert torch.equal(greedy(model.float(), inputs), greedy(cpu, inputs))


@pytest.mark.neuron_only
def test_default_device_context(checkpoint: Path) -> None:
    with torch.device("neuron"):
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16")
    assert_all_on(model, torch.device("neuron", 0))
    assert_bits_of_file(model, checkpoint)


@pytest.mark.neuron_only
def test_follows_the_selected_core(checkpoint: Path) -> None:
    """Worker threads that load weights use the core that the main thread selected, not core 0."""
    torch.neuron.set_device(1)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16", device_map="neuron")
    assert_all_on(model, torch.device("neuron", 1))


def test_to_device_and_back(checkpoint: Path, device: str, indexed_device: torch.device) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16").to(device)
    assert_all_on(model, indexed_device)
    assert_bits_of_file(model, checkpoint)
    assert_bits_of_file(model.to("cpu"), checkpoint)


@pytest.mark.neuron_only
def test_module_neuron_method(checkpoint: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16").neuron()
    assert_all_on(model, torch.device("neuron", 0))


def test_change_of_dtype_while_loading(checkpoint: Path, device: str) -> None:
    """Device and dtype change in one `.to` from a worker thread."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32", device_map=device)
    assert_same_weights(model, AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32"))


@pytest.mark.parametrize("asynchronous", [True, False], ids=["threads", "no-threads"])
def test_sharded_safetensors(
    sharded: Path, device: str, indexed_device: torch.device, asynchronous: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asynchronous:
        monkeypatch.delenv("HF_DEACTIVATE_ASYNC_LOAD", raising=False)
    else:
        monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")
    model = AutoModelForCausalLM.from_pretrained(sharded, dtype="bfloat16", device_map=device)
    assert_all_on(model, indexed_device)
    assert_same_weights(model, AutoModelForCausalLM.from_pretrained(sharded, dtype="bfloat16"))


def test_copies_from_many_threads(device: str) -> None:
    """A thousand copies with a cast from four threads at once: no deadlock, no wrong byte (transformers loads this way)."""
    sources = [torch.full((17 + index % 50,), float(index)) for index in range(1000)]
    results: list[torch.Tensor | None] = [None] * len(sources)

    def worker(first: int) -> None:
        for index in range(first, len(sources), 4):
            results[index] = sources[index][1:].to(device=device, dtype=torch.bfloat16)

    threads = [threading.Thread(target=worker, args=(first,), daemon=True) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "copying hangs"
    for source, result in zip(sources, results, strict=True):
        assert result is not None
        assert torch.equal(result.cpu(), source[1:].bfloat16())


def test_missing_weights_are_drawn_from_the_seed(tmp_path: Path, device: str, indexed_device: torch.device) -> None:
    """A checkpoint without its head: the head is initialised on the device, the same for the same seed, with the right spread."""
    model = LlamaForCausalLM(LlamaConfig(**{**DECODER, "initializer_range": 0.02}))
    model.model.save_pretrained(tmp_path)
    heads = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        loaded = LlamaForCausalLM.from_pretrained(tmp_path, device_map=device)
        assert_all_on(loaded, indexed_device)
        heads.append(loaded.lm_head.weight.detach().cpu())
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert abs(heads[0].std().item() - 0.02) < 0.001 and abs(heads[0].mean().item()) < 0.001


def test_save_from_device(checkpoint: Path, tmp_path: Path, device: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16", device_map=device)
    model.save_pretrained(tmp_path)
    assert_same_weights(AutoModelForCausalLM.from_pretrained(tmp_path, dtype="bfloat16"), model)


def test_tied_weights_stay_tied(tmp_path: Path, device: str) -> None:
    """One storage on the device for embedding and head; saving stores it once."""
    config = LlamaConfig(**{**DECODER, "tie_word_embeddings": True})
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    model = LlamaForCausalLM.from_pretrained(tmp_path, device_map=device)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert model.model.norm.weight.data_ptr() != model.model.layers[0].input_layernorm.weight.data_ptr()
    model.save_pretrained(tmp_path / "again")
    with safe_open(tmp_path / "again" / "model.safetensors", framework="pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118


MEMORY_SCRIPT = """
import json, resource
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained({folder!r}, dtype="bfloat16", device_map={device!r})
total = sum(float(parameter.detach().flatten()[::1024].float().sum()) for parameter in model.parameters())  # touches every page
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, total]))
"""


def test_peak_host_memory(tmp_path: Path) -> None:
    """Loading 240 MB onto the device peaks at no more than 1.1 times what loading onto the CPU does (the whole process counted)."""
    config = LlamaConfig(**{**DECODER, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "vocab_size": 2048})
    with torch.device("meta"):
        model = LlamaForCausalLM(config).bfloat16()
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.01)
    model.save_pretrained(tmp_path)
    del model
    peaks, sums = {}, {}
    for name in ("cpu", TEST_DEVICE):
        peaks[name], sums[name] = run_json(MEMORY_SCRIPT.format(folder=str(tmp_path), device=name))
    assert sums[TEST_DEVICE] == pytest.approx(sums["cpu"], rel=1e-4)
    assert peaks[TEST_DEVICE] <= 1.1 * peaks["cpu"], json.dumps(peaks)
