"""timm: ten architectures in small sizes, forward, backward and training steps on the device against the CPU."""

from __future__ import annotations

import copy
import os

import pytest
import torch
from torch import Tensor, nn

DEVICE = os.environ["ECOSYSTEM_DEVICE"]
SIZE = 64
CLASSES = 7

# A torchvision for CUDA beside a CPU build of torch cannot load its library, nor be imported without the operators that this defines.
# Nothing here runs them; they are declared in its place.
OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
if torch.version.cuda is None:
    for _name, _schema in OPERATORS.items():
        torch.library.define(f"torchvision::{_name}", _schema)

import timm  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402

VIT = {"img_size": SIZE, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}
SWIN = {"img_size": SIZE, "window_size": 4, "embed_dim": 16, "depths": (1, 1), "num_heads": (1, 2), "drop_path_rate": 0.0}
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "resnet": ("resnet18", {}),
    "efficientnet": ("efficientnet_b0", {}),
    "mobilenetv3": ("mobilenetv3_small_050", {}),
    "regnet": ("regnetx_002", {}),
    "densenet": ("densenet121", {"block_config": (2, 2), "growth_rate": 8}),
    "convnext": ("convnext_atto", {"depths": (1, 1, 1, 1), "dims": (8, 16, 32, 48)}),
    "vit": ("vit_tiny_patch16_224", VIT),
    "deit": ("deit_tiny_distilled_patch16_224", VIT),
    "swin": ("swin_tiny_patch4_window7_224", SWIN),
    "mixer": ("mixer_s32_224", {"img_size": SIZE}),
    "poolformer": ("poolformer_s12", {}),
    "mobilevit": ("mobilevit_xxs", {}),
}


def make_pair(name: str) -> tuple[nn.Module, nn.Module]:
    """The same model on the CPU and on the device."""
    torch.manual_seed(0)
    architecture, sizes = MODELS[name]
    reference = timm.create_model(architecture, pretrained=False, num_classes=CLASSES, **sizes)
    return reference, copy.deepcopy(reference).to(DEVICE)


def make_batch(count: int = 3) -> tuple[Tensor, Tensor]:
    """Images and labels on the CPU."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, SIZE, SIZE, generator=generator), torch.randint(CLASSES, (count,), generator=generator)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_forward(name: str, channels_last: bool) -> None:
    reference, model = make_pair(name)
    images, _ = make_batch()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with torch.no_grad():
        expected = reference.eval().to(memory_format=layout)(images.to(memory_format=layout))
        found = model.eval().to(memory_format=layout)(images.to(DEVICE, memory_format=layout))
    assert found.device.type == DEVICE
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_forward_in_bfloat16(name: str) -> None:
    reference, model = make_pair(name)
    images = make_batch()[0].bfloat16()
    with torch.no_grad():
        expected = reference.eval().bfloat16()(images)
        found = model.eval().bfloat16()(images.to(DEVICE))
    torch.testing.assert_close(found.cpu(), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name: str) -> None:
    """In training mode, so that batch normalization uses and updates its statistics."""
    reference, model = make_pair(name)
    images, labels = make_batch()
    nn.functional.cross_entropy(reference.train()(images), labels).backward()
    nn.functional.cross_entropy(model.train()(images.to(DEVICE)), labels.to(DEVICE)).backward()
    # Some gradients are rounding alone, such as that of a bias before another batch normalization.
    largest = max(p.grad.abs().max().item() for p in reference.parameters() if p.grad is not None)
    for (key, left), right in zip(reference.named_parameters(), model.parameters(), strict=True):
        if left.grad is None:
            assert right.grad is None, key
            continue
        scale = left.grad.abs().max().item()
        torch.testing.assert_close(
            right.grad.cpu(), left.grad, rtol=1e-3, atol=1e-3 * scale + 1e-5 * largest, msg=lambda text, key=key: f"{key}: {text}"
        )
    for (key, left), right in zip(reference.named_buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(right.cpu(), left, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", MODELS)
def test_training_steps(name: str) -> None:
    curves = []
    images, labels = make_batch()
    for model, device in zip(make_pair(name), ("cpu", DEVICE), strict=True):
        optimizer = create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9, weight_decay=0.01)
        losses = []
        for _ in range(3):
            loss = nn.functional.cross_entropy(model.train()(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        curves.append(losses)
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), rtol=2e-3, atol=1e-4)
    assert curves[0][0] != curves[0][-1]
