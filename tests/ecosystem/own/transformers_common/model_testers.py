"""What the common model tests ask of an architecture: a small configuration and inputs, the same on every device."""

from __future__ import annotations

import unittest
from typing import Any

import torch
import transformers
from architectures import Architecture
from transformers import PretrainedConfig
from transformers.testing_utils import torch_device

BATCH = 3
LENGTH = 9
SOUND_LENGTH = 1024


class ModelTester:
    """Configuration, inputs and expected sizes of one architecture, under the names that the common tests use."""

    def __init__(self, parent: unittest.TestCase, architecture: Architecture) -> None:
        self.parent = parent
        self.architecture = architecture
        self.config_class = getattr(transformers, architecture.config)
        sizes = architecture.sizes
        self.is_training = True
        self.batch_size = BATCH
        self.vocab_size = sizes.get("vocab_size", 99)
        config = self.get_config()
        self.hidden_size = getattr(config, "hidden_size", None)
        self.num_hidden_layers = self._layers(config)
        self.num_attention_heads = getattr(config, "num_attention_heads", None)
        self.image_size = sizes.get("image_size", 32)
        if architecture.kind == "image":
            self.mask_length = (self.image_size // getattr(config, "patch_size", 4)) ** 2
            self.num_masks = self.mask_length // 2
        self.seq_length = self._sequence_length(config)
        self.encoder_seq_length = self.decoder_seq_length = self.key_length = self.seq_length
        self.expected_num_hidden_layers = self._expected_hidden_states(config)

    def _layers(self, config: PretrainedConfig) -> int:
        stages = getattr(config, "depths", None)
        return len(stages) if stages else config.num_hidden_layers

    def _expected_hidden_states(self, config: PretrainedConfig) -> int:
        # The embeddings' output comes first, but Segformer has none.
        return self._layers(config) + (0 if self.architecture.config == "SegformerConfig" else 1)

    def _sequence_length(self, config: PretrainedConfig) -> int:
        if self.architecture.kind == "image":
            special = {"ViTConfig": 1, "Dinov2Config": 1, "DeiTConfig": 2}.get(self.architecture.config, 0)
            return (self.image_size // getattr(config, "patch_size", 4)) ** 2 + special
        if self.architecture.kind == "speech":
            length = SOUND_LENGTH
            for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
                length = (length - kernel) // stride + 1
            return length
        return LENGTH

    def get_config(self) -> PretrainedConfig:
        """A new configuration of the architecture."""
        return self.config_class(**self.architecture.sizes)

    def _tokens(self, generator: torch.Generator) -> torch.Tensor:
        # From 4 on: padding or the end of a sequence in the middle of it has a meaning of its own for some architectures.
        return torch.randint(4, self.vocab_size, (BATCH, LENGTH), generator=generator)

    def prepare_config_and_inputs_for_common(self) -> tuple[PretrainedConfig, dict[str, Any]]:
        """Configuration and seeded inputs, drawn on the CPU so that every device gets the same, on the device under test."""
        generator = torch.Generator().manual_seed(11)
        kind = self.architecture.kind
        inputs: dict[str, torch.Tensor] = {}
        if kind == "image":
            inputs["pixel_values"] = torch.randn(BATCH, 3, self.image_size, self.image_size, generator=generator)
        elif kind == "speech":
            inputs["input_values"] = torch.randn(BATCH, SOUND_LENGTH, generator=generator)
            inputs["attention_mask"] = torch.ones(BATCH, SOUND_LENGTH, dtype=torch.long)
        else:
            inputs["input_ids"] = self._tokens(generator)
            inputs["attention_mask"] = torch.ones(BATCH, LENGTH, dtype=torch.long)
        if self.architecture.config == "MambaConfig":
            # The state goes on over padding, so the architecture has no mask.
            del inputs["attention_mask"]
        if kind == "seq2seq":
            inputs["decoder_input_ids"] = self._tokens(generator)
            inputs["decoder_attention_mask"] = torch.ones(BATCH, LENGTH, dtype=torch.long)
        return self.get_config(), {name: value.to(torch_device) for name, value in inputs.items()}
