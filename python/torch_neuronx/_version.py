"""The version: PyTorch's number, then SoftNeuron's own after the plus sign. Nothing else states it."""

__version__ = "2.13.0+softneuron.0.1.0"
