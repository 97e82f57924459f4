"""What a user asked of one `torch.compile` call: mode, options, environment. Unknown things warn once and are otherwise ignored."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_neuronx import _C

log = logging.getLogger("torch_neuronx.compile")

DYNAMIC_SHAPES_TEXT = (
    "NCC_EMOD025 Dynamic shape is not supported: {what}. Programs for backend 'neuron' have static shapes. Leave `dynamic` unset or pass "
    "`dynamic=False`: each new shape is then compiled once, on its first call. To compile less often, pad inputs to a few fixed sizes."
)

_KNOWN_OPTIONS = frozenset({"model_name", "dynamic", "use_tensorizer_backend", "fallback_execution"})
_warned: set[str] = set()


class DynamicShapeError(RuntimeError):
    """Dynamic shapes were asked for, which programs for `neuron` do not have."""


def warn_once(key: str, message: str, *args: object) -> None:
    """Log a warning the first time that `key` is seen in this process."""
    if key not in _warned:
        _warned.add(key)
        log.warning(message, *args)


def log_cache_reports() -> None:
    """Pass on what the cache folder had to report: a damaged entry, a full disk. Each once a process."""
    for message in _C.take_compile_reports():
        log.warning("%s", message)


def log_graph(name: str, node_count: int, graph: _C.CompiledGraph) -> None:
    """Log a line about a compiled graph, and at level DEBUG its program."""
    source = ", cached" if graph.was_cached else ", from the cache on disk" if graph.was_stored else ""
    log.info("compiled %s: %d nodes, %d instructions%s", name, node_count, graph.instruction_count, source)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s", graph.text)


def environment_flag(name: str, default: bool) -> bool:
    """Read a boolean variable: 0, 1, true or false in any case. Unset means `default`; else a ValueError names the variable."""
    value = os.environ.get(name)
    if value is None:
        return default
    flag = {"0": False, "false": False, "1": True, "true": True}.get(value.strip().lower())
    if flag is None:
        raise ValueError(f"{name}={value!r} is not valid: expected 0, 1, true or false")
    return flag


@dataclass(frozen=True)
class Settings:
    """The options of one compiled function, checked."""

    model_name: str = "model"
    fallback_execution: bool = False

    @staticmethod
    def from_user(mode: str | None, options: Mapping[str, Any] | None, others: Mapping[str, Any]) -> "Settings":
        """Check what was passed to `torch.compile`. Raises DynamicShapeError for `options={"dynamic": True}`, TypeError for wrong types."""
        if mode not in (None, "default"):
            warn_once(f"mode {mode}", "torch.compile(backend='neuron') knows only mode='default'; mode=%r acts as default", mode)
        options = dict(options or {})
        for key in sorted(options.keys() - _KNOWN_OPTIONS):
            warn_once(
                f"option {key}",
                "torch.compile(backend='neuron') ignores the unknown option %r; known: %s",
                key,
                ", ".join(sorted(_KNOWN_OPTIONS)),
            )
        for key in sorted(others):
            warn_once(f"argument {key}", "torch.compile(backend='neuron') ignores the argument %r", key)
        for key, kind in (("model_name", str), ("dynamic", bool), ("use_tensorizer_backend", bool), ("fallback_execution", bool)):
            if options.get(key) is not None and not isinstance(options[key], kind):
                raise TypeError(f"option {key!r} of backend 'neuron' is a {kind.__name__}, got {options[key]!r}")
        if options.get("dynamic"):
            raise DynamicShapeError(DYNAMIC_SHAPES_TEXT.format(what="options={'dynamic': True} was passed to torch.compile"))
        fallback = options.get("fallback_execution")
        if fallback is None:
            fallback = not environment_flag("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", default=True)
        return Settings(model_name=options.get("model_name") or "model", fallback_execution=fallback)
