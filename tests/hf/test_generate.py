"""Greedy `generate` for fourteen architectures: same tokens as the CPU in float32, as close to float32 as the CPU in bfloat16."""

from __future__ import annotations

import copy

import pytest
import torch

from .helpers import assert_all_on, assert_close_as_cpu, distance, greedy
from .model_zoo import ZOO, as_user_passes, make_inputs, make_model

NEW_TOKENS = 16


def teacher_forced(name: str, inputs: dict[str, torch.Tensor], sequence: torch.Tensor) -> dict[str, torch.Tensor]:
    """Inputs of one forward pass over a whole generated sequence, so that logits are comparable position by position."""
    if ZOO[name].encoder_decoder:
        return {**inputs, "decoder_input_ids": sequence}
    mask = torch.ones_like(sequence)
    mask[:, : inputs["attention_mask"].shape[1]] = inputs["attention_mask"]
    return {**inputs, "input_ids": sequence, "attention_mask": mask}


def logits_on(model: torch.nn.Module, inputs: dict[str, torch.Tensor], device: str) -> torch.Tensor:
    """Logits [batch, length, vocabulary] of one forward pass with the inputs moved to `device`."""
    moved = {key: value.to(device, model.dtype if value.is_floating_point() else None) for key, value in inputs.items()}
    with torch.no_grad():
        return model(**moved).logits


def valid_positions(name: str, logits: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits [n, vocabulary] of positions that are not padding: what a model says about padding means nothing."""
    if ZOO[name].encoder_decoder:
        return logits.flatten(0, 1)
    return logits[inputs["attention_mask"].to(logits.device).bool()]


@pytest.mark.parametrize("name", ZOO)
def test_float32_tokens_equal_cpu(name: str, device: str, indexed_device: torch.device) -> None:
    inputs = make_inputs(name)
    cpu_model = make_model(name)
    expected = greedy(cpu_model, inputs, NEW_TOKENS)
    assert len(expected[:, -NEW_TOKENS:].unique()) >= 3, "the model repeats itself: this comparison proves nothing"
    model = copy.deepcopy(cpu_model).to(device)
    assert_all_on(model, indexed_device)
    assert torch.equal(greedy(model, as_user_passes(name, inputs, model.device), NEW_TOKENS), expected)

    whole = teacher_forced(name, inputs, expected)
    on_cpu, on_device = logits_on(cpu_model, whole, "cpu"), logits_on(model, whole, device)
    assert on_device.device == indexed_device
    assert distance(valid_positions(name, on_device, whole), valid_positions(name, on_cpu, whole)) < 1e-5


@pytest.mark.parametrize("name", ZOO)
def test_bfloat16_logits_as_close_as_cpu(name: str, device: str) -> None:
    cpu_model = make_model(name).bfloat16()
    reference_model = copy.deepcopy(cpu_model).float()
    inputs = make_inputs(name)
    whole = teacher_forced(name, inputs, greedy(reference_model, inputs, NEW_TOKENS))
    model = copy.deepcopy(cpu_model).to(device)
    logits = {
        "device": logits_on(model, whole, device),
        "cpu": logits_on(cpu_model, whole, "cpu"),
        "reference": logits_on(reference_model, whole, "cpu"),
    }
    assert logits["device"].dtype == logits["cpu"].dtype
    picked = {key: valid_positions(name, value, whole) for key, value in logits.items()}
    assert_close_as_cpu(picked["device"], picked["cpu"], picked["reference"])


@pytest.mark.parametrize("name", ["qwen3", "t5"])
def test_inputs_on_the_device(name: str, device: str, indexed_device: torch.device) -> None:
    """The other way of the page: inputs moved by the user, output on the device."""
    inputs = make_inputs(name)
    cpu_model = make_model(name)
    expected = greedy(cpu_model, inputs, NEW_TOKENS)
    model = copy.deepcopy(cpu_model).to(device)
    moved = {key: value.to(device) for key, value in inputs.items()}
    assert moved["input_ids"].device == indexed_device
    assert torch.equal(greedy(model, moved, NEW_TOKENS), expected)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_implementations(implementation: str, device: str) -> None:
    inputs = make_inputs("qwen3", length=40)
    cpu_model = make_model("qwen3")
    cpu_model.set_attn_implementation(implementation)
    model = copy.deepcopy(cpu_model).to(device)
    assert torch.equal(greedy(model, inputs), greedy(cpu_model, inputs))


def test_fully_padded_row_gives_no_nan(device: str) -> None:
    """transformers does not unmask fully masked rows for this device: softmax over `finfo.min` everywhere must stay finite."""
    inputs = make_inputs("qwen3")
    inputs["attention_mask"][1] = 0
    for dtype in (torch.float32, torch.bfloat16):
        model = make_model("qwen3").to(device, dtype)
        model.set_attn_implementation("eager")
        assert torch.isfinite(logits_on(model, inputs, device)).all()


@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm", "eager"])
def test_expert_implementations(implementation: str, device: str) -> None:
    """All three ways in which transformers multiplies by experts, forward and backward."""
    inputs = make_inputs("qwen3_moe", padded=False)
    losses, gradients = [], []
    for where in ("cpu", device):
        model = make_model("qwen3_moe").to(where)
        model.set_experts_implementation(implementation)
        loss = model(**{key: value.to(where) for key, value in inputs.items()}, labels=inputs["input_ids"].to(where)).loss
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([p.grad.flatten().cpu() for p in model.parameters() if p.grad is not None]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert gradients[0].shape == gradients[1].shape
    assert distance(gradients[1], gradients[0]) < 1e-5


def test_same_output_twice(device: str) -> None:
    """No operator depends on memory left over from an earlier call."""
    model = make_model("mixtral").to(device)
    inputs = make_inputs("mixtral")
    first = greedy(model, inputs)
    torch.full((1 << 20,), float("nan"), device=device)
    assert torch.equal(greedy(model, inputs), first)
