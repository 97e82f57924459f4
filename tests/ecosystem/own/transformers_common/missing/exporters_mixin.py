"""Copied beside the common tests of transformers' source package, which import this module although the package does not hold it."""


class ExportTesterMixin:
    """No tests: `torch.export` and ONNX are not about a device."""
