"""`Trainer` on the device: found by itself, the CPU's loss curve in float32, checkpoints, accumulation, clipping."""

from __future__ import annotations

import gc
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

from .helpers import BFLOAT16_SLACK, TEST_DEVICE, assert_all_on, assert_same_weights
from .training import STEPS, Sequences, curve, make_trainer, tiny_llama, train_on

CURVE_TOLERANCE = 1e-5


def assert_same_curves(actual: Trainer, expected: Trainer, steps: int = STEPS) -> None:
    """Loss and gradient norm of every step agree to `CURVE_TOLERANCE` relative, and the loss really fell."""
    for key in ("loss", "grad_norm"):
        left, right = curve(actual, key), curve(expected, key)
        assert len(left) == len(right) == steps
        assert left == pytest.approx(right, rel=CURVE_TOLERANCE if key == "loss" else 10 * CURVE_TOLERANCE), key
    assert curve(expected)[-1] < 0.95 * curve(expected)[0], "nothing was learned: this comparison proves nothing"


@pytest.mark.neuron_only
def test_training_arguments_find_the_device(tmp_path: Path) -> None:
    """The page's line, with nothing said about a device."""
    arguments = TrainingArguments(output_dir=str(tmp_path), bf16=True)
    assert arguments.device == torch.device("neuron:0")
    assert arguments.n_gpu == 1
    assert torch.neuron.current_device() == 0


def test_loss_curve_equals_cpu(tmp_path: Path, device: str, indexed_device: torch.device) -> None:
    trainer = train_on(device, tmp_path / "device")
    assert_all_on(trainer.model, indexed_device)
    cpu = train_on("cpu", tmp_path / "cpu")
    assert cpu.model.device.type == "cpu"
    assert_same_curves(trainer, cpu)
    # AdamW moves a weight by up to the learning rate (2e-3 here) even where its gradient is rounding noise.
    assert_same_weights(trainer.model, cpu.model, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 2},
        {"max_grad_norm": 0.1},
        {"optim": "adafactor", "learning_rate": 1e-2},
        {"optim": "sgd", "learning_rate": 0.5, "lr_scheduler_type": "cosine", "warmup_steps": 3},
        {"label_smoothing_factor": 0.1, "weight_decay": 0.1},
        {"dataloader_num_workers": 1, "dataloader_persistent_workers": True},
        {"torch_empty_cache_steps": 2, "dataloader_drop_last": True},
    ],
    ids="+".join,
)
def test_loss_curve_equals_cpu_with(arguments: dict[str, Any], tmp_path: Path, device: str) -> None:
    assert_same_curves(train_on(device, tmp_path / "device", **arguments), train_on("cpu", tmp_path / "cpu", **arguments))


def test_accumulation_equals_one_large_batch(tmp_path: Path, device: str) -> None:
    """Four batches of two are one batch of eight: the loss is averaged over tokens, padding left out."""
    small = train_on(device, tmp_path / "small", gradient_accumulation_steps=4, per_device_train_batch_size=2)
    large = train_on(device, tmp_path / "large", per_device_train_batch_size=8)
    assert curve(small) == pytest.approx(curve(large), rel=1e-4)


def test_clipping_limits_the_step(tmp_path: Path, device: str) -> None:
    """With plain SGD and rate 1 the first step moves the weights by exactly the clipped norm."""
    model = tiny_llama()
    before = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
    arguments = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0.25, "max_steps": 1}
    trainer = train_on(device, tmp_path, model=model, **arguments)
    after = torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])
    assert curve(trainer, "grad_norm")[0] > 0.25
    assert (after - before).norm().item() == pytest.approx(0.25, rel=1e-3)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing(use_reentrant: bool, tmp_path: Path, device: str) -> None:
    """Recomputing activations changes nothing, dropout included: the device's random state is saved and restored."""
    curves = []
    for checkpointing in (False, True):
        trainer = train_on(
            device,
            tmp_path / str(checkpointing),
            model=tiny_llama(attention_dropout=0.2),
            gradient_checkpointing=checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": use_reentrant},
        )
        curves.append((curve(trainer), curve(trainer, "grad_norm")))
    assert curves[1][0] == pytest.approx(curves[0][0], rel=CURVE_TOLERANCE)
    assert curves[1][1] == pytest.approx(curves[0][1], rel=10 * CURVE_TOLERANCE)


@pytest.mark.neuron_only
def test_gradient_checkpointing_saves_memory(tmp_path: Path) -> None:
    peaks = []
    for checkpointing in (False, True):
        trainer = make_trainer(
            tmp_path,
            model=tiny_llama(num_hidden_layers=6),
            gradient_checkpointing=checkpointing,
            per_device_train_batch_size=16,
            max_steps=2,
        )
        torch.neuron.synchronize()
        torch.neuron.reset_peak_memory_stats()
        start = torch.neuron.memory_allocated()
        trainer.train()
        peaks.append(torch.neuron.max_memory_allocated() - start)
    assert peaks[1] < 0.7 * peaks[0]


def test_evaluation_and_prediction_equal_cpu(tmp_path: Path, device: str) -> None:
    """A ragged last batch (10 = 4 + 4 + 2), loss, metrics from predictions, and the predictions themselves."""

    def accuracy(prediction: EvalPrediction) -> dict[str, float]:
        picked = prediction.predictions[:, :-1].argmax(-1)
        labels = prediction.label_ids[:, 1:]
        return {"accuracy": float((picked == labels)[labels != -100].mean())}

    results = []
    for name in (device, "cpu"):
        trainer = train_on(name, tmp_path / name, max_steps=10, eval_dataset=Sequences(size=10, seed=1), per_device_eval_batch_size=4)
        trainer.compute_metrics = accuracy
        results.append((trainer.evaluate(), trainer.predict(Sequences(size=10, seed=1)).predictions))
    (actual, actual_logits), (expected, expected_logits) = results
    assert actual["eval_loss"] == pytest.approx(expected["eval_loss"], rel=CURVE_TOLERANCE)
    assert actual["eval_accuracy"] == expected["eval_accuracy"]
    torch.testing.assert_close(torch.from_numpy(actual_logits), torch.from_numpy(expected_logits), rtol=1e-3, atol=1e-4)


def test_resumed_run_equals_uninterrupted(tmp_path: Path, device: str) -> None:
    """Twenty steps in one go, and ten steps after a checkpoint at step ten by a new Trainer: the same losses, the same bits."""
    arguments = {
        "save_strategy": "steps",
        "save_steps": 10,
        "eval_strategy": "steps",
        "eval_steps": 5,
        "eval_dataset": Sequences(size=8, seed=1),
    }
    whole = train_on(device, tmp_path, **arguments)
    checkpoint = tmp_path / "checkpoint-10"
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} <= {
        file.name for file in checkpoint.iterdir()
    }

    resumed = make_trainer(tmp_path / "resumed", device, model=tiny_llama(seed=99), **arguments)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.state.global_step == STEPS
    assert curve(resumed) == curve(whole)
    assert curve(resumed, "eval_loss") == curve(whole, "eval_loss")
    assert_same_weights(resumed.model, whole.model)


def test_checkpoint_moves_between_devices(tmp_path: Path, device: str) -> None:
    """A run saved on the device goes on on the CPU (and the other way round) as if it had never moved."""
    arguments = {"save_strategy": "steps", "save_steps": 10}
    reference = train_on("cpu", tmp_path / "cpu", **arguments)
    train_on(device, tmp_path / "device", **arguments)
    for source, target in (("device", "cpu"), ("cpu", device)):
        moved = make_trainer(tmp_path / f"from-{source}", target, model=tiny_llama(seed=99), **arguments)
        moved.train(resume_from_checkpoint=str(tmp_path / source / "checkpoint-10"))
        assert curve(moved) == pytest.approx(curve(reference), rel=CURVE_TOLERANCE)


def test_same_seed_same_run(tmp_path: Path, device: str) -> None:
    """Dropout on the device follows the Trainer's seed: two runs agree bit for bit, another seed differs."""
    runs = [
        train_on(device, tmp_path / str(index), model=tiny_llama(attention_dropout=0.3), seed=seed) for index, seed in enumerate((5, 5, 6))
    ]
    assert curve(runs[0]) == curve(runs[1])
    assert_same_weights(runs[0].model, runs[1].model)
    assert curve(runs[0]) != curve(runs[2])


class _LinearOutputs(TrainerCallback):
    """Notes the dtypes that the first layer's MLP gives during training."""

    def __init__(self) -> None:
        self.dtypes: set[torch.dtype] = set()

    def on_train_begin(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        """Watches one linear layer."""
        model.model.layers[0].mlp.up_proj.register_forward_hook(lambda _module, _inputs, output: self.dtypes.add(output.dtype))


def test_bf16_autocast(tmp_path: Path, device: str) -> None:
    """`bf16=True`: float32 weights, bfloat16 linear layers, and a loss curve no further from float32 than the CPU's own bf16 run."""
    seen = _LinearOutputs()
    run = train_on(device, tmp_path / "bf16", bf16=True, callbacks=[seen])
    assert seen.dtypes == {torch.bfloat16}
    assert {parameter.dtype for parameter in run.model.parameters()} == {torch.float32}
    assert all(math.isfinite(value) for value in curve(run, "grad_norm"))

    reference = torch.tensor(curve(train_on("cpu", tmp_path / "reference")))
    cpu = torch.tensor(curve(train_on("cpu", tmp_path / "cpu", bf16=True)))
    actual = torch.tensor(curve(run))
    assert actual[-1] < 0.95 * actual[0]
    assert (actual - reference).norm() <= BFLOAT16_SLACK * (cpu - reference).norm()


def test_bf16_weights(tmp_path: Path, device: str) -> None:
    """A model in pure bfloat16 trains (weights, gradients and optimizer state in bfloat16)."""
    run = train_on(device, tmp_path, model=tiny_llama().bfloat16(), max_steps=40)
    losses = curve(run)
    assert all(map(math.isfinite, losses)) and losses[-1] < 0.95 * losses[0]
    assert {state["exp_avg"].dtype for state in run.optimizer.state.values()} == {torch.bfloat16}


@pytest.mark.neuron_only
def test_optimizer_state_is_on_the_device(tmp_path: Path) -> None:
    """Weights, gradients' moments and batches are there; the default optimizer is the fused AdamW and runs as such."""
    import torch_neuronx

    torch_neuronx.clear_op_tracking()
    trainer = train_on(TEST_DEVICE, tmp_path, max_steps=2)
    states = [state["exp_avg"].device for state in trainer.optimizer.state.values()]
    assert set(states) == {torch.device("neuron", 0)}
    assert "aten::_fused_adamw_" in torch_neuronx.get_executed_ops()


@pytest.mark.neuron_only
def test_memory_is_given_back(tmp_path: Path) -> None:
    """After a run and its trainer are gone, the device holds no more than before."""
    train_on(TEST_DEVICE, tmp_path, max_steps=2)
    torch.neuron.empty_cache()
    before = torch.neuron.memory_allocated()
    for _ in range(3):
        train_on(TEST_DEVICE, tmp_path, max_steps=2)
    gc.collect()
    torch.neuron.empty_cache()
    assert torch.neuron.memory_allocated() <= before


@pytest.mark.neuron_only
def test_no_warning_about_the_device(tmp_path: Path) -> None:
    """Seeding, pinned memory and autocast are known to the device: torch has nothing to warn about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train_on(TEST_DEVICE, tmp_path, max_steps=2, bf16=True)
    about_device = [
        str(warning.message)
        for warning in caught
        if any(word in str(warning.message).lower() for word in ("privateuse", "neuron", "pin_memory"))
    ]
    assert about_device == []
