"""diffusers: pipelines around a small UNet and a small diffusion transformer, built from configurations, on the device against the CPU."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DiTPipeline,
    DiTTransformer2DModel,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UNet2DModel,
)
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, PreTrainedTokenizerFast

DEVICE = os.environ["ECOSYSTEM_DEVICE"]
SIZE = 16
STEPS = 3


def make_unet() -> UNet2DModel:
    """Unconditional UNet for images of 16x16."""
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=SIZE,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).eval()


def make_transformer() -> DiTTransformer2DModel:
    """Diffusion transformer with adaptive normalization by class, for latents of 8x8."""
    torch.manual_seed(0)
    return DiTTransformer2DModel(
        sample_size=8,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=2,
        in_channels=4,
        out_channels=8,
        attention_bias=True,
        num_embeds_ada_norm=1000,
    ).eval()


def make_autoencoder() -> AutoencoderKL:
    """Variational autoencoder that halves images."""
    torch.manual_seed(0)
    return AutoencoderKL(
        in_channels=3,
        out_channels=3,
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=8,
        latent_channels=4,
        sample_size=SIZE,
    ).eval()


def make_dit_pipeline() -> DiTPipeline:
    """Class-conditional pipeline."""
    return DiTPipeline(transformer=make_transformer(), vae=make_autoencoder(), scheduler=DDIMScheduler())


def make_text_pipeline() -> StableDiffusionPipeline:
    """Text to image: UNet with cross attention, CLIP text encoder, autoencoder."""
    words = ["<pad>", "<unk>", "a", "cat", "dog"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=4,
    ).eval()
    text = CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        eos_token_id=3,
    )
    return StableDiffusionPipeline(
        vae=make_autoencoder(),
        text_encoder=CLIPTextModel(text).eval(),
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", model_max_length=16),
        unet=unet,
        scheduler=DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        image_encoder=None,
        requires_safety_checker=False,
    )


def noise(shape: tuple[int, ...]) -> Tensor:
    """Seeded noise on the CPU, where pipelines draw it when they get a generator of the CPU."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def cpu_generator() -> torch.Generator:
    """The same numbers on every device."""
    return torch.Generator().manual_seed(4)


def quiet(pipeline: object) -> object:
    """The pipeline without its progress bar."""
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def assert_images_equal(expected: object, found: object) -> None:
    """Images (arrays in [0, 1]) agree and are not blank."""
    left, right = torch.as_tensor(expected), torch.as_tensor(found)
    assert left.std() > 1e-3
    torch.testing.assert_close(right, left, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scheduler", [DDPMScheduler, DDIMScheduler])
def test_unet_pipeline(scheduler: type) -> None:
    images = []
    for device in ("cpu", DEVICE):
        pipeline = quiet(DDPMPipeline(unet=make_unet(), scheduler=scheduler())).to(device)
        assert pipeline.device.type == device
        images.append(pipeline(batch_size=2, num_inference_steps=STEPS, generator=cpu_generator(), output_type="np").images)
    assert_images_equal(*images)


def test_dit_pipeline() -> None:
    images = []
    for device in ("cpu", DEVICE):
        pipeline = quiet(make_dit_pipeline()).to(device)
        images.append(
            pipeline(class_labels=[1, 7], num_inference_steps=STEPS, guidance_scale=2.0, generator=cpu_generator(), output_type="np").images
        )
    assert_images_equal(*images)


def test_text_to_image_pipeline() -> None:
    images = []
    for device in ("cpu", DEVICE):
        pipeline = quiet(make_text_pipeline()).to(device)
        images.append(
            pipeline("a cat", num_inference_steps=STEPS, height=SIZE, width=SIZE, generator=cpu_generator(), output_type="np").images
        )
    assert_images_equal(*images)


def test_saved_pipeline_loads_onto_the_device(tmp_path: Path) -> None:
    quiet(make_dit_pipeline()).to(DEVICE).save_pretrained(tmp_path)
    images = []
    for device in ("cpu", DEVICE):
        pipeline = quiet(DiTPipeline.from_pretrained(tmp_path)).to(device)
        images.append(pipeline(class_labels=[2], num_inference_steps=2, generator=cpu_generator(), output_type="np").images)
    assert_images_equal(*images)


@pytest.mark.parametrize("make_model", [make_unet, make_transformer, make_autoencoder])
def test_bfloat16_forward(make_model: object) -> None:
    reference = make_model().bfloat16()
    model = copy.deepcopy(reference).to(DEVICE)
    with torch.no_grad():
        expected, found = (denoise(side, device) for side, device in ((reference, "cpu"), (model, DEVICE)))
    torch.testing.assert_close(found.cpu(), expected, rtol=5e-2, atol=5e-2)


def denoise(model: nn.Module, device: str) -> Tensor:
    """Output of any of the models here for fixed inputs in the model's dtype."""
    times = torch.tensor([10, 500], device=device)
    if isinstance(model, UNet2DModel):
        return model(noise((2, 3, SIZE, SIZE)).to(device, model.dtype), times).sample
    if isinstance(model, DiTTransformer2DModel):
        return model(noise((2, 4, 8, 8)).to(device, model.dtype), times, torch.tensor([1, 7], device=device)).sample
    return model(noise((2, 3, SIZE, SIZE)).to(device, model.dtype)).sample


@pytest.mark.parametrize("make_model", [make_unet, make_transformer, make_autoencoder])
def test_training_steps(make_model: object) -> None:
    reference = make_model()
    curves = []
    for model, device in ((reference, "cpu"), (copy.deepcopy(reference).to(DEVICE), DEVICE)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(STEPS):
            loss = denoise(model, device).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        curves.append(losses)
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), rtol=1e-3, atol=1e-5)
    assert curves[0][-1] < curves[0][0]
