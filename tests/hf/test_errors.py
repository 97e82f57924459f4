"""Bad input through Hugging Face libraries: a clear error, nothing lost, the device still usable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM

from .helpers import greedy, run_json
from .model_zoo import make_inputs, make_model
from .training import Sequences

pytestmark = pytest.mark.neuron_only


@pytest.mark.parametrize("wanted", ["neuron:7", {"": 7}, {"": torch.device("neuron", 4)}], ids=str)
def test_core_that_does_not_exist(wanted: Any, tmp_path: Path, nothing_lost: None) -> None:
    make_model("qwen3").save_pretrained(tmp_path)
    with pytest.raises((ValueError, RuntimeError), match=r"neuron:[47].*4 NeuronCores"):
        AutoModelForCausalLM.from_pretrained(tmp_path, device_map=wanted)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, device_map="neuron").device == torch.device("neuron", 0)


def test_checkpoint_naming_a_core_that_does_not_exist(tmp_path: Path) -> None:
    """Saved on core 3, read where one core is visible: the error says what to do, and doing it works."""
    model = make_model("llama").to("neuron:3")
    torch.save(model.state_dict(), tmp_path / "state.pt")
    script = f"""
    import json, torch
    path = {str(tmp_path / "state.pt")!r}
    try:
        torch.load(path)
        message = None
    except RuntimeError as error:
        message = str(error)
    states = [torch.load(path, map_location=where) for where in ("neuron", "neuron:0", "cpu")]
    places = [sorted({{str(value.device) for value in state.values()}}) for state in states]
    print(json.dumps([message, places]))
    """
    message, places = run_json(script, env={"NEURON_RT_NUM_CORES": "1"})
    assert message is not None and "map_location" in message and "3" in message
    assert places == [["neuron:0"], ["neuron:0"], ["cpu"]]


@pytest.mark.parametrize("kept", [0.5, 0.99, 0.001])
def test_truncated_safetensors(kept: float, tmp_path: Path, nothing_lost: None) -> None:
    model = make_model("qwen3")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(SafetensorError):
        AutoModelForCausalLM.from_pretrained(tmp_path, device_map="neuron")
    file.write_bytes(content)
    restored = AutoModelForCausalLM.from_pretrained(tmp_path, device_map="neuron")
    assert torch.equal(greedy(restored, make_inputs("qwen3")), greedy(model, make_inputs("qwen3")))


def test_missing_shard(tmp_path: Path, nothing_lost: None) -> None:
    make_model("qwen3").save_pretrained(tmp_path, max_shard_size="100KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    shards[-1].unlink()
    with pytest.raises(OSError, match=shards[-1].name):
        AutoModelForCausalLM.from_pretrained(tmp_path, device_map="neuron")


class _OnDevice(Dataset[torch.Tensor]):
    """A mistake: items are made on the device, inside a forked worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), index, device="neuron")


def test_device_in_a_forked_worker(nothing_lost: None) -> None:
    """After the parent has used the device, a forked worker gets the documented error, not a hang or a crash."""
    torch.ones(1, device="neuron")
    with pytest.raises(RuntimeError, match="spawn"):
        list(DataLoader(_OnDevice(), num_workers=1, multiprocessing_context="fork"))
    assert len(list(DataLoader(Sequences(size=8), num_workers=1, batch_size=4, multiprocessing_context="fork"))) == 2


def test_pinned_batches(nothing_lost: None) -> None:
    """The Trainer's default (`dataloader_pin_memory=True`) with workers: batches are pinned and copied without a warning."""
    loader = DataLoader(Sequences(size=8), num_workers=1, batch_size=4, pin_memory=True, multiprocessing_context="fork")
    for index, batch in enumerate(loader):
        assert batch["input_ids"].is_pinned()
        copied = batch["input_ids"].to("neuron", non_blocking=True)
        assert torch.equal(copied.cpu(), Sequences(size=8).tokens[4 * index : 4 * index + 4] * batch["attention_mask"])


def test_inputs_on_another_core() -> None:
    """The usual message, naming both devices."""
    model = make_model("llama").to("neuron:0")
    inputs = {key: value.to("neuron:1") for key, value in make_inputs("llama").items()}
    with pytest.raises(RuntimeError, match=r"same device.*neuron:[01].*neuron:[01]"):
        model(**inputs)


def test_inputs_on_the_cpu() -> None:
    """A forward pass (unlike `generate`) does not move its inputs."""
    with pytest.raises(RuntimeError, match=r"same device.*(neuron:0.*cpu|cpu.*neuron:0)"):
        make_model("llama").to("neuron")(**make_inputs("llama"))


def test_numpy_of_device_output() -> None:
    """The same advice as CUDA gives; bfloat16 goes through float."""
    logits = (
        make_model("llama")
        .bfloat16()
        .to("neuron")(**{key: value.to("neuron") for key, value in make_inputs("llama").items()})
        .logits.detach()
    )
    with pytest.raises(TypeError, match=r"can't convert neuron:0 device type tensor to numpy.*cpu\(\)"):
        logits.numpy()
    assert logits.float().cpu().numpy().shape == (2, 12, 256)


def test_wrong_environment_is_named(tmp_path: Path) -> None:
    """A bad list of cores names the variable and the value; `import torch` and the CPU keep working."""
    script = """
    import json, torch
    try:
        torch.ones(1, device="neuron")
        message = None
    except Exception as error:
        message = str(error)
    print(json.dumps([message, torch.ones(1).item()]))
    """
    message, on_cpu = run_json(script, env={"NEURON_RT_VISIBLE_CORES": "2-99"})
    assert message is not None and "NEURON_RT_VISIBLE_CORES" in message and "2-99" in message
    assert on_cpu == 1.0


def test_id_out_of_the_vocabulary(nothing_lost: None) -> None:
    """The most common mistake with tokenizers: an index error, not a read of foreign memory."""
    model = make_model("llama").to("neuron")
    with pytest.raises(IndexError, match="out of range"):
        model(input_ids=torch.tensor([[5, 300]], device="neuron"))
