"""One test class per architecture: the common model tests of transformers' source package, and own comparisons with the CPU.

Which architectures: the environment variable `ECOSYSTEM_ARCHITECTURES`, names separated by commas. The runner copies this file beside
the source package's `tests`, and runs it there.
"""

from __future__ import annotations

import os
import unittest

import transformers
from architectures import ARCHITECTURES, Architecture
from device_against_cpu import DeviceAgainstCpuMixin
from model_testers import ModelTester
from tests.generation.test_utils import GenerationTesterMixin
from tests.test_modeling_common import ModelTesterMixin


def make_test_class(name: str, architecture: Architecture) -> type[unittest.TestCase]:
    """The test class of one architecture."""
    models = tuple(getattr(transformers, model) for model in architecture.models)
    mixins: list[type] = [DeviceAgainstCpuMixin, ModelTesterMixin]
    if any(model.can_generate() for model in models):
        mixins.append(GenerationTesterMixin)

    def set_up(self: unittest.TestCase) -> None:
        self.model_tester = ModelTester(self, architecture)

    attributes = {"setUp": set_up, "model_tester": None, "all_model_classes": models, "__module__": __name__, **architecture.attributes}
    return type(f"Test_{name}", (*mixins, unittest.TestCase), attributes)


for _name in os.environ["ECOSYSTEM_ARCHITECTURES"].split(","):
    globals()[f"Test_{_name}"] = make_test_class(_name, ARCHITECTURES[_name])
