"""Makes the device known to PyTorch, with PyTorch's own calls for that purpose."""

import atexit
import logging
import sys
import warnings

import torch
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

_registered = False


def register() -> None:
    """Register the name `neuron`, the module `torch.neuron` and the conversion methods (`Tensor.neuron()` and relatives).

    The first call does it, later ones return at once. Never raises; what goes wrong becomes one warning that says what to do.
    """
    global _registered
    if _registered:
        return
    _registered = True
    try:
        problem = _register()
    except Exception as error:  # a failing autoload would make `import torch` itself fail
        problem = (
            f"it could not be registered with torch {torch.__version__} ({error}). "
            "If another out-of-tree device is installed, set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one you want."
        )
    if problem:
        _warn(f"The device `neuron` is not available: {problem}")


def _warn(message: str) -> None:
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:  # warnings are errors in this process; that must not make `import torch` fail either
        logging.getLogger(__name__).warning(message)


def _register() -> str:
    """Do the work, and return what keeps the device from being usable, if anything."""
    # First: the plugin's static initialisers and everything below may parse the device's name.
    rename_privateuse1_backend("neuron")
    from torch_neuronx import _library, neuron

    torch._register_device_module("neuron", neuron)
    for name in ("amp", "memory", "random"):
        # `import torch.neuron.memory` finds the module that `torch.neuron.memory` is, instead of loading a second copy.
        sys.modules[f"torch.neuron.{name}"] = sys.modules[f"{neuron.__name__}.{name}"]
    generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True)
    if not _library.problem:
        # A worker of the autograd engine that lets go of Python objects while the interpreter shuts down would abort the process.
        atexit.register(_library._C.drain_autograd_threads)
        from torch_neuronx import distributed

        distributed.register()
    return _library.problem
