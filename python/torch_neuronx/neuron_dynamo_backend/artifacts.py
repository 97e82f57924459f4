"""Dumps of every form that a graph takes, for people who want to see what the compiler did.

With `TORCH_NEURONX_DEBUG_DIR` set (or `TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS=1`, then below `/tmp/neuron_backend`) each compiled
graph leaves

    fx_graphs/proc_<rank>/<graph>.txt             the graph of AOTAutograd, with shapes and source lines
    programs/proc_<rank>/<graph>/<nn>_<stage>.txt the program as imported, after each pass, and as it runs
"""

import os
from pathlib import Path

import torch

from torch_neuronx.neuron_dynamo_backend.settings import environment_flag, warn_once

_DEFAULT = "/tmp/neuron_backend"


def folder() -> Path | None:
    """Give the folder of the dumps, None if there are to be none."""
    named = os.environ.get("TORCH_NEURONX_DEBUG_DIR")
    if named:
        return Path(named)
    return Path(_DEFAULT) if environment_flag("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", default=False) else None


def stages_wanted() -> list[tuple[str, str]] | None:
    """Give a list for the compiler to put its stages into, None if nobody wants them."""
    return [] if folder() is not None else None


def write(name: str, gm: torch.fx.GraphModule, stages: list[tuple[str, str]]) -> None:
    """Write the dumps of one graph. What goes wrong is logged once; compiling goes on."""
    root = folder()
    if root is None:
        return
    process = f"proc_{os.environ.get('RANK', '0')}"
    safe = "".join(character if character.isalnum() or character in "._-" else "_" for character in name)
    graphs, programs = root / "fx_graphs" / process, root / "programs" / process / safe
    try:
        graphs.mkdir(parents=True, exist_ok=True)
        programs.mkdir(parents=True, exist_ok=True)
        (graphs / f"{safe}.txt").write_text(gm.print_readable(print_output=False, include_stride=True, include_device=True))
        for old in programs.glob("*.txt"):
            old.unlink()
        for index, (stage, text) in enumerate(stages):
            (programs / f"{index:02}_{stage}.txt").write_text(text)
    except OSError as error:
        warn_once("artifacts", "the dumps of compiled graphs cannot be written below %s: %s", root, error)
