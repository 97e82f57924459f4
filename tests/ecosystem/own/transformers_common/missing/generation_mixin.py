"""Copied beside the common tests of transformers' source package, which import this module although the package does not hold it."""

from device_against_cpu import GenerationAgainstCpuMixin


class GenerationTesterMixin(GenerationAgainstCpuMixin):
    """The common tests require this name of classes that generate; the tests below it are this project's own."""
