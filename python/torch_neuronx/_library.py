"""The compiled plugin `torch_neuronx._C`, or a stand-in that says why it cannot be used.

Everything else imports `_C` from here, so that a missing or mismatched plugin never makes `import torch` fail.
"""

import importlib.util
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch

# Versions of PyTorch (major.minor) that the sources support. A built plugin works with the one it was built for.
SUPPORTED_TORCH = ("2.13", "2.14")

_REBUILD = "rebuild torch-neuronx for it (`pip install --no-build-isolation --force-reinstall --no-deps <its source folder>`)"


class PluginUnavailableError(RuntimeError):
    """Raised by every use of the device when the compiled plugin could not be loaded."""


class _Unavailable:
    """Stands in for `_C`: no cores, nothing initialised, and an explanation for everything else."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def device_count(self) -> int:
        return 0

    def topology_error(self) -> str:
        return ""  # the problem was already reported when the package was registered

    def is_initialized(self) -> bool:
        return False

    def is_in_bad_fork(self) -> bool:
        return False

    def __getattr__(self, name: str) -> NoReturn:
        raise PluginUnavailableError(f"The device `neuron` cannot be used: {self._problem}")


def _minor(version: str) -> str:
    return ".".join(version.split("+", maxsplit=1)[0].split(".")[:2])


def _torch_problem(built_for: str) -> str:
    """Say why the installed torch does not fit the plugin, or return an empty string."""
    installed = str(torch.__version__)
    if _minor(installed) == _minor(built_for):
        return ""
    advice = f"install torch {_minor(built_for)}.*"
    if _minor(installed) in SUPPORTED_TORCH:
        advice += f", or {_REBUILD}"
    return f"torch {installed} is installed, but the plugin was built for torch {_minor(built_for)}; {advice}."


def _is_whole(path: str) -> bool:
    """Say whether a shared library reaches as far as its header says. Loading one that was cut short (disk full) kills the process."""
    with open(path, "rb") as file:
        header = file.read(64)
        size = file.seek(0, os.SEEK_END)
    if len(header) < 64 or header[:4] != b"\x7fELF":
        return False
    (section_table,) = struct.unpack_from("<Q", header, 40)
    entry_size, entries = struct.unpack_from("<HH", header, 58)
    return bool(section_table + entry_size * entries <= size)


def _load() -> tuple[Any, str]:
    """Return the plugin and an empty string, or its stand-in and the reason.

    The version of torch is checked first, because loading a plugin that was built for another one can crash.
    """
    try:
        from torch_neuronx._build_info import TORCH_VERSION
    except ImportError:
        problem = (
            f"{Path(__file__).parent} holds no compiled plugin; run `pip install .` in the source folder of torch-neuronx, "
            "or start Python in another folder if this is that source folder."
        )
        return _Unavailable(problem), problem
    problem = _torch_problem(TORCH_VERSION)
    if not problem:
        try:
            spec = importlib.util.find_spec("torch_neuronx._C")
            if spec is not None and spec.origin is not None and not _is_whole(spec.origin):
                raise ImportError(f"{spec.origin} is incomplete")
            from torch_neuronx import _C

            return _C, ""
        except ImportError as error:
            problem = f"the compiled plugin could not be loaded ({error}); reinstall torch-neuronx, or {_REBUILD}."
    return _Unavailable(problem), problem


if TYPE_CHECKING:
    from torch_neuronx import _C as _C  # noqa: PLC0414 (marks the re-export)

    problem: str
else:
    _C, problem = _load()
