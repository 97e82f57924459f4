"""accelerate: device, mixed precision, launcher, saved state with random numbers, models split over cores: as on CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from accelerate import Accelerator, cpu_offload, dispatch_model
from accelerate.utils import DistributedType, gather_object, release_memory, send_to_device, set_seed
from torch.utils.data import DataLoader, TensorDataset

from .helpers import assert_same_weights, greedy, package_parent
from .model_zoo import make_inputs, make_model
from .training import Sequences, tiny_llama


def accelerator_on(device: str, **options: Any) -> Accelerator:
    """An `Accelerator` that finds the device under test by itself."""
    return Accelerator(cpu=device == "cpu", **options)


class Regression(torch.nn.Module):
    """A small network with dropout: random numbers on the device matter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.3), torch.nn.GELU(), torch.nn.Linear(32, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [batch, 8] to [batch, 1]."""
        return self.layers(x)


def regression_parts(seed: int = 0) -> tuple[Regression, torch.optim.Optimizer, DataLoader[Any], torch.optim.lr_scheduler.LRScheduler]:
    """Model, optimizer, shuffled data and schedule, the same for the same seed."""
    set_seed(seed)
    x = torch.randn(64, 8)
    model = Regression()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    return model, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, step_size=20)


def epoch(accelerator: Accelerator, parts: tuple[Any, ...]) -> list[float]:
    """One pass over the data; the losses."""
    model, optimizer, loader, scheduler = parts
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.neuron_only
def test_device_is_found() -> None:
    accelerator = Accelerator()
    assert accelerator.device.type == "neuron"
    assert accelerator.distributed_type == DistributedType.NO
    assert torch.ones(2, device=accelerator.device).device == torch.device("neuron", 0)


def test_prepare_places_model_and_batches(device: str, indexed_device: torch.device) -> None:
    accelerator = accelerator_on(device)
    model, _, loader, _ = accelerator.prepare(*regression_parts())
    assert {parameter.device for parameter in model.parameters()} == {indexed_device}
    x, y = next(iter(loader))
    assert x.device == y.device == indexed_device
    nested = send_to_device({"a": [torch.ones(2), (torch.zeros(3, dtype=torch.int64),)]}, accelerator.device)
    assert nested["a"][0].device == nested["a"][1][0].device == indexed_device


def test_training_equals_cpu(device: str) -> None:
    """With accumulation and clipping; without dropout, whose numbers are the device's own."""
    runs = []
    for name in (device, "cpu"):
        accelerator = accelerator_on(name, gradient_accumulation_steps=2)
        parts = accelerator.prepare(*regression_parts())
        parts[0].eval()
        runs.append(epoch(accelerator, parts) + epoch(accelerator, parts))
        accelerator.free_memory()
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    assert runs[0] == pytest.approx(runs[1], rel=1e-5)
    assert sum(runs[0][-8:]) < 0.8 * sum(runs[0][:8])


def test_bf16_mixed_precision(device: str) -> None:
    """Linear layers run in bfloat16, weights and the model's output are float32, a loss stays float32."""
    accelerator = accelerator_on(device, mixed_precision="bf16")
    model = accelerator.prepare(Regression())
    seen: list[torch.dtype] = []
    accelerator.unwrap_model(model).layers[0].register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    output = model(torch.ones(4, 8, device=accelerator.device))
    assert seen == [torch.bfloat16] and output.dtype == torch.float32
    accelerator.backward(output.square().mean())
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}
    with accelerator.autocast():
        assert torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
        assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled(device)


@pytest.mark.neuron_only
def test_fp16_is_refused_by_accelerate() -> None:
    """accelerate's list of devices for float16 does not name this one: its own clear error."""
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in"):
        Accelerator(mixed_precision="fp16")


def test_saved_state_restores_random_numbers(tmp_path: Path, device: str) -> None:
    """Save after one epoch, run a second, load, run the second again: dropout, shuffling and optimizer give the same losses."""
    accelerator = accelerator_on(device)
    parts = accelerator.prepare(*regression_parts())
    first = epoch(accelerator, parts)
    accelerator.save_state(str(tmp_path))
    expected = epoch(accelerator, parts)
    after = [parameter.detach().cpu().clone() for parameter in parts[0].parameters()]
    assert expected != first
    epoch(accelerator, parts)
    accelerator.load_state(str(tmp_path))
    assert epoch(accelerator, parts) == expected
    assert all(torch.equal(left.detach().cpu(), right) for left, right in zip(parts[0].parameters(), after, strict=True))


@pytest.mark.neuron_only
def test_saved_state_holds_the_generators_of_all_cores(tmp_path: Path) -> None:
    accelerator = Accelerator()
    accelerator.prepare(*regression_parts())
    torch.randn(5, device="neuron")
    accelerator.save_state(str(tmp_path))
    expected = [torch.rand(4, device=f"neuron:{core}").cpu() for core in range(torch.neuron.device_count())]
    set_seed(123)
    accelerator.load_state(str(tmp_path))
    actual = [torch.rand(4, device=f"neuron:{core}").cpu() for core in range(torch.neuron.device_count())]
    assert all(torch.equal(left, right) for left, right in zip(actual, expected, strict=True))


def test_set_seed_reaches_the_device(device: str) -> None:
    draws = []
    for seed in (1, 1, 2):
        set_seed(seed)
        draws.append(torch.randn(16, device=device).cpu())
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_collectives_of_one_process(device: str) -> None:
    accelerator = accelerator_on(device)
    value = torch.arange(4, device=accelerator.device)
    assert torch.equal(accelerator.gather(value).cpu(), torch.arange(4))
    assert torch.equal(accelerator.reduce(value, "sum").cpu(), torch.arange(4))
    assert torch.equal(accelerator.pad_across_processes(value).cpu(), torch.arange(4))
    assert gather_object(["a", 1]) == ["a", 1]
    accelerator.wait_for_everyone()


@pytest.mark.neuron_only
def test_memory_is_released() -> None:
    accelerator = Accelerator()
    torch.neuron.empty_cache()
    before = torch.neuron.memory_allocated(), torch.neuron.memory_reserved()
    model = accelerator.prepare(torch.nn.Linear(2048, 2048))
    assert torch.neuron.memory_allocated() >= before[0] + 4 * 2048 * 2048
    (model,) = accelerator.free_memory(model)
    (model,) = release_memory(model)
    assert model is None
    assert torch.neuron.memory_allocated() == before[0] and torch.neuron.memory_reserved() <= before[1]


@pytest.mark.neuron_only
def test_dynamo_plugin_compiles(fresh_compiler: None) -> None:
    accelerator = Accelerator(dynamo_backend="neuron")
    model = tiny_llama().eval()
    batch = {key: value[None] for key, value in Sequences()[1].items()}
    expected = model(**batch).loss.item()
    prepared = accelerator.prepare(model)
    with torch.no_grad():
        actual = prepared(**send_to_device(batch, accelerator.device)).loss.item()
    assert actual == pytest.approx(expected, rel=1e-5)
    assert len(torch.neuron.get_dynamo_metrics()) == 1


@pytest.mark.neuron_only
def test_model_split_over_cores() -> None:
    """Layers on two cores, activations copied between them by accelerate's hooks."""
    expected = greedy(make_model("llama"), make_inputs("llama"))
    device_map = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": 1, "lm_head": 1}
    model = dispatch_model(make_model("llama"), device_map=device_map)
    devices = {name: parameter.device for name, parameter in model.named_parameters()}
    assert devices["model.layers.0.mlp.up_proj.weight"] == torch.device("neuron", 0)
    assert devices["model.layers.1.mlp.up_proj.weight"] == torch.device("neuron", 1)
    assert torch.equal(greedy(model, make_inputs("llama")), expected)


def test_offload_to_the_host(device: str) -> None:
    """Weights wait in host memory and visit the device layer by layer."""
    expected = greedy(make_model("llama"), make_inputs("llama"))
    model = cpu_offload(make_model("llama"), execution_device=torch.device(device, 0) if device != "cpu" else torch.device("cpu"))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert torch.equal(greedy(model, make_inputs("llama")), expected)


LAUNCHED = """
import json, sys
sys.path.insert(0, {root!r})
import torch
from accelerate import Accelerator
from hf.test_accelerate import epoch, regression_parts
torch.set_num_threads(1)
accelerator = Accelerator()
parts = accelerator.prepare(*regression_parts())
losses = epoch(accelerator, parts) + epoch(accelerator, parts)
print(json.dumps([str(accelerator.device), accelerator.num_processes, accelerator.mixed_precision, losses]))
"""


@pytest.mark.neuron_only
def test_launch_one_process(tmp_path: Path) -> None:
    """`accelerate launch` on one core, chosen by `--gpu_ids`, which reaches the runtime as NEURON_RT_VISIBLE_CORES."""
    script = tmp_path / "train.py"
    script.write_text(LAUNCHED.format(root=str(package_parent())) + "print(json.dumps(torch.neuron.device_count()))\n")
    options = ["--num_processes", "1", "--num_machines", "1", "--mixed_precision", "bf16", "--dynamo_backend", "no", "--gpu_ids", "1"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ACCELERATE_")}
    command = [sys.executable, "-m", "accelerate.commands.launch", *options, str(script)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    report, cores = map(json.loads, result.stdout.strip().splitlines()[-2:])
    name, processes, precision, losses = report
    assert (torch.device(name).type, processes, precision, cores) == ("neuron", 1, "bf16", 1)
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])


@pytest.mark.neuron_only
def test_environment_report() -> None:
    """`accelerate env` names the device."""
    result = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.accelerate_cli", "env"], capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "neuron:0" in result.stdout


def test_state_dict_round_trip(tmp_path: Path, device: str) -> None:
    """`save_model` from the device, loaded into a fresh model on the CPU."""
    accelerator = accelerator_on(device)
    model = accelerator.prepare(tiny_llama())
    accelerator.save_model(model, str(tmp_path))
    fresh = tiny_llama(seed=5)
    accelerate.load_checkpoint_in_model(fresh, str(tmp_path))
    assert_same_weights(fresh, accelerator.unwrap_model(model))
