"""Reads declarations from the wheel's generated ATen headers, to prove at generation time that a symbol with a signature exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .catalog import Signature

_DECLARATION = re.compile(r"^TORCH_API\s+(?P<returns>.+?)\s*(?<![\w:])(?P<name>\w+)\((?P<arguments>.*)\);\s*$", re.MULTILINE)


def _normalise(cpp_type: str) -> str:
    return re.sub(r"\s+", "", cpp_type).replace("::std::", "std::")


def _split(arguments: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(arguments):
        if character in "<({":
            depth += 1
        elif character in ">)}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(arguments[start:position])
            start = position + 1
    parts.append(arguments[start:])
    return [part.strip() for part in parts if part.strip()]


def _type_of(argument: str) -> str:
    """`const at::Tensor & self={}` -> `const at::Tensor &`."""
    declared = argument.split("=", 1)[0].strip()
    return re.sub(r"\w+$", "", declared).strip()


@cache
def _declarations(header: Path) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    found = set()
    for match in _DECLARATION.finditer(header.read_text()):
        types = tuple(_normalise(_type_of(argument)) for argument in _split(match["arguments"]))
        found.add((match["name"], _normalise(match["returns"]), types))
    return frozenset(found)


def declares(header: Path, name: str, signature: Signature) -> bool:
    """Whether `header` exports a function `name` with exactly this signature."""
    if not header.is_file():
        return False
    wanted = (name, _normalise(signature.returns), tuple(_normalise(t) for t in signature.argument_types))
    return wanted in _declarations(header)


def overloads(header: Path, name: str) -> list[str]:
    """List the signatures of `name` in `header`, for error messages."""
    if not header.is_file():
        return [f"no header {header.name}"]
    return [f"{returns} ({', '.join(types)})" for found, returns, types in sorted(_declarations(header)) if found == name]
