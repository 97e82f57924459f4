"""Makes the device known to PyTorch, with PyTorch's own calls for that purpose."""

import atexit
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
        _register()
    except Exception as error:  # a failing autoload would make `import torch` itself fail
        warnings.warn(
            f"The device `neuron` could not be registered with torch {torch.__version__}: {error} "
            "If another out-of-tree device is installed, set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the one you want.",
            RuntimeWarning,
            stacklevel=2,
        )


def _register() -> None:
    # First: the plugin's static initialisers and everything below may parse the device's name.
    rename_privateuse1_backend("neuron")
    from torch_neuronx import _library, neuron

    torch._register_device_module("neuron", neuron)
    for name in ("amp", "memory", "random"):
        # `import torch.neuron.memory` finds the module that `torch.neuron.memory` is, instead of loading a second copy.
        sys.modules[f"torch.neuron.{name}"] = sys.modules[f"{neuron.__name__}.{name}"]
    generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True)
    if _library.problem:
        warnings.warn(f"The device `neuron` is not available: {_library.problem}", RuntimeWarning, stacklevel=3)
    else:
        # A worker of the autograd engine that lets go of Python objects while the interpreter shuts down would abort the process.
        atexit.register(_library._C.drain_autograd_threads)
