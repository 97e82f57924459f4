"""Own tests of an architecture: the device under test against the CPU, with the same weights and inputs."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.testing_utils import torch_device

STEPS = 3
# With the default of 0.02 a small model almost ignores its input, and a device that computes wrongly would still be close.
# (`initializer_factor`, T5's, is wide as it is: its scores are not divided by anything.)
WIDE_INITIALIZATION = {"initializer_range": 0.25, "init_std": 0.25}
TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2},
}


def floating_tensors(value: Any) -> Iterator[Tensor]:
    """All floating tensors in a model output, in order."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from floating_tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from floating_tensors(item)


def on(device: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs on a device."""
    return {name: value.to(device) for name, value in inputs.items()}


def objective(model: PreTrainedModel, inputs: dict[str, Any]) -> Tensor:
    """A scalar in which every element of the model's main output has a weight of its own.

    A mean of squares would not do: behind a norm it is a constant, whose gradient is rounding alone.
    """
    output = model(**inputs)[0].float()
    weights = torch.arange(output.numel(), dtype=torch.float32).cos()
    return (output * weights.view(output.shape).to(output.device)).mean()


class DeviceAgainstCpuMixin:
    """For test classes that also have transformers' `ModelTesterMixin`."""

    def _models(self) -> Iterator[tuple[PreTrainedModel, PreTrainedModel, dict[str, Any]]]:
        """For each model class a pair with the same weights, on the CPU and on the device, and inputs on the CPU."""
        for model_class in self.all_model_classes:
            config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
            self._widen(config)
            torch.manual_seed(5)
            reference = model_class(config).eval()
            yield reference, copy.deepcopy(reference).to(torch_device), on("cpu", self._prepare_for_class(inputs, model_class))

    def _widen(self, config: PretrainedConfig) -> None:
        for name, value in WIDE_INITIALIZATION.items():
            if hasattr(config, name):
                setattr(config, name, value)

    def _assert_outputs_agree(self, reference: Any, output: Any, dtype: torch.dtype) -> None:
        expected, found = list(floating_tensors(reference)), list(floating_tensors(output))
        self.assertEqual(len(expected), len(found))
        self.assertGreater(len(expected), 0)
        for left, right in zip(expected, found, strict=True):
            self.assertEqual(right.device.type, torch_device)
            torch.testing.assert_close(right.cpu(), left, **TOLERANCES[dtype])

    def _assert_as_near(self, exact: Any, reference: Any, output: Any) -> None:
        """The output is at most twice as far from the float32 one as the CPU's in the same dtype is, give or take a unit of the largest."""
        for right, expected, found in zip(*map(list, map(floating_tensors, (exact, reference, output))), strict=True):
            self.assertEqual(found.device.type, torch_device)
            cpu, device = ((tensor.cpu().float() - right).abs().max().item() for tensor in (expected, found))
            self.assertLessEqual(device, 2 * cpu + torch.finfo(found.dtype).eps * right.abs().max().item())

    def test_own_forward_equals_cpu(self) -> None:
        for reference, model, inputs in self._models():
            with self.subTest(type(model).__name__), torch.no_grad():
                self._assert_outputs_agree(reference(**inputs), model(**on(torch_device, inputs)), torch.float32)

    def test_own_bfloat16_forward_equals_cpu(self) -> None:
        for reference, model, inputs in self._models():
            halved = {name: value.bfloat16() if value.is_floating_point() else value for name, value in inputs.items()}
            with self.subTest(type(model).__name__), torch.no_grad():
                expected = reference.bfloat16()(**halved)
                self._assert_outputs_agree(expected, model.bfloat16()(**on(torch_device, halved)), torch.bfloat16)

    def test_own_float16_attention_equals_cpu(self) -> None:
        """Each implementation on its own; the common tests compare them with each other, with tolerances for `cpu` and `cuda` only."""
        for reference, model, inputs in self._models():
            if not (self.has_attentions and reference._supports_sdpa):
                self.skipTest("one implementation of attention only")
            halved = {name: value.half() if value.is_floating_point() else value for name, value in inputs.items()}
            for implementation in ("eager", "sdpa"):
                with self.subTest(f"{type(model).__name__} {implementation}"), torch.no_grad():
                    for side in (reference, model):
                        side.half().set_attn_implementation(implementation)
                    exact = copy.deepcopy(reference).float()(**{n: v.float() if v.is_floating_point() else v for n, v in halved.items()})
                    self._assert_as_near(exact, reference(**halved), model(**on(torch_device, halved)))

    def test_own_gradients_equal_cpu(self) -> None:
        for reference, model, inputs in self._models():
            with self.subTest(type(model).__name__):
                objective(reference, inputs).backward()
                objective(model, on(torch_device, inputs)).backward()
                with_gradient = 0
                # Some gradients are rounding alone, such as those of the bias of keys, which softmax does not see.
                largest = max(p.grad.abs().max().item() for p in reference.parameters() if p.grad is not None)
                for (name, left), right in zip(reference.named_parameters(), model.parameters(), strict=True):
                    self.assertEqual(left.grad is None, right.grad is None, name)
                    if left.grad is not None:
                        with_gradient += 1
                        scale = left.grad.abs().max().item()
                        torch.testing.assert_close(
                            right.grad.cpu(),
                            left.grad,
                            rtol=1e-3,
                            atol=1e-4 * scale + 1e-5 * largest,
                            msg=lambda text, n=name: f"{n}: {text}",
                        )
                self.assertGreater(with_gradient, 0)

    def test_own_training_steps_equal_cpu(self) -> None:
        for reference, model, inputs in self._models():
            with self.subTest(type(model).__name__):
                curves = []
                for trained, device in ((reference, "cpu"), (model, torch_device)):
                    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
                    losses = []
                    for _ in range(STEPS):
                        loss = objective(trained, on(device, inputs))
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                        losses.append(loss.item())
                    curves.append(losses)
                torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), rtol=1e-3, atol=1e-5)
                self.assertNotEqual(curves[0][0], curves[0][-1])

    def test_own_saved_from_device_is_bit_equal(self) -> None:
        for reference, model, _ in self._models():
            with self.subTest(type(model).__name__), tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                loaded = type(model).from_pretrained(folder, device_map=torch_device)
                for (name, left), right in zip(reference.state_dict().items(), loaded.state_dict().values(), strict=True):
                    self.assertEqual(right.device.type, torch_device)
                    self.assertTrue(torch.equal(left, right.cpu()), name)


class GenerationAgainstCpuMixin:
    """Stands where transformers' `GenerationTesterMixin` stands, whose file is not in the source package. Own tests only."""

    def _generators(self) -> Iterator[tuple[PreTrainedModel, PreTrainedModel, dict[str, Any]]]:
        pairs = [pair for pair in self._models() if pair[0].can_generate()]
        if not pairs:
            self.skipTest("no class of this architecture generates")
        for reference, model, inputs in pairs:
            for generator in (reference, model):
                # A random model may write the end token at any time.
                generator.generation_config.eos_token_id = None
                generator.generation_config.pad_token_id = generator.config.get_text_config().pad_token_id or 0
            yield reference, model, {name: value for name, value in inputs.items() if not name.startswith("decoder_")}

    def _assert_same_tokens(self, **arguments: Any) -> None:
        for reference, model, inputs in self._generators():
            with self.subTest(type(model).__name__):
                expected = reference.generate(**inputs, max_new_tokens=8, **arguments)
                found = model.generate(**on(torch_device, inputs), max_new_tokens=8, **arguments)
                self.assertEqual(found.device.type, torch_device)
                self.assertGreater(expected.shape[1], 8)
                self.assertTrue(torch.equal(expected, found.cpu()), f"{expected} {found}")

    def test_own_greedy_tokens_equal_cpu(self) -> None:
        self._assert_same_tokens(do_sample=False)

    def test_own_beam_search_equals_cpu(self) -> None:
        self._assert_same_tokens(do_sample=False, num_beams=3)

    def test_own_logits_of_each_step_equal_cpu(self) -> None:
        for reference, model, inputs in self._generators():
            with self.subTest(type(model).__name__):
                arguments = {"max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}
                expected = reference.generate(**inputs, **arguments)
                found = model.generate(**on(torch_device, inputs), **arguments)
                for left, right in zip(expected.logits, found.logits, strict=True):
                    torch.testing.assert_close(right.cpu(), left, rtol=1e-4, atol=1e-4)

    def test_own_sampling_is_repeatable(self) -> None:
        for _, model, inputs in self._generators():
            with self.subTest(type(model).__name__):
                runs = []
                for seed in (3, 3, 4):
                    transformers.set_seed(seed)
                    runs.append(model.generate(**on(torch_device, inputs), max_new_tokens=8, do_sample=True))
                self.assertTrue(torch.equal(runs[0], runs[1]))
                self.assertFalse(torch.equal(runs[0], runs[2]))
