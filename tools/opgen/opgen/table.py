"""`src/torch/ops/table.yaml`: what a person decides about operators. Everything it does not mention follows from the wheel."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from .catalog import Operator
from .errors import OpgenError

_SECTIONS = {"native", "metadata", "error", "sparse_members", "deterministic", "mixed_devices", "host_on_trainium"}


class _UniqueKeyLoader(yaml.SafeLoader):
    """A later line must not silently win over an earlier one with the same operator."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise OpgenError(f"table line {key_node.start_mark.line + 1}: '{key}' is listed twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class Group:
    """Operators listed together, with the reason (or the source of the statement) that docs/operators.md prints."""

    reason: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The parsed table. Names are overload names (`add.out`); only `host_on_trainium` holds patterns over base names."""

    native: dict[str, str]
    metadata: frozenset[str]
    error: tuple[Group, ...]
    sparse_members: frozenset[str]
    deterministic: dict[str, str]
    mixed_devices: frozenset[str]
    host_on_trainium: tuple[Group, ...]

    def error_reason(self, name: str) -> str | None:
        """Why the table wants `name` to raise an error, or None."""
        for group in self.error:
            if name in group.operators:
                return group.reason
        return None

    def runs_on_host(self, operator: Operator) -> bool:
        """Whether real Trainium runs the operator on its host CPU."""
        return any(matches(pattern, operator) for group in self.host_on_trainium for pattern in group.operators)


def matches(pattern: str, operator: Operator) -> bool:
    """Match a pattern over base names; `acos` also covers `acos_`, `uniform_` only the in-place operator."""
    return fnmatchcase(operator.base, pattern) or fnmatchcase(operator.base, pattern + "_")


def _groups(section: str, value: Any, key: str) -> tuple[Group, ...]:
    groups = []
    for entry in value or []:
        if not isinstance(entry, dict) or set(entry) != {key, "ops"}:
            raise OpgenError(f"table section '{section}': every entry needs exactly '{key}:' and 'ops:', found {entry!r}")
        groups.append(Group(str(entry[key]), tuple(str(name) for name in entry["ops"])))
    return tuple(groups)


def load_table(path: Path, catalog: dict[str, Operator]) -> Table:
    """Parse and check against the catalog. Raises OpgenError for unknown sections, unknown operators and contradictory entries."""
    data = yaml.load(path.read_text(), Loader=_UniqueKeyLoader) or {}
    unknown = set(data) - _SECTIONS
    if unknown:
        raise OpgenError(f"table: unknown sections {sorted(unknown)}; known are {sorted(_SECTIONS)}")
    table = Table(
        native={str(k): str(v) for k, v in (data.get("native") or {}).items()},
        metadata=frozenset(data.get("metadata") or []),
        error=_groups("error", data.get("error"), "reason"),
        sparse_members=frozenset(data.get("sparse_members") or []),
        deterministic={str(k): str(v) for k, v in (data.get("deterministic") or {}).items()},
        mixed_devices=frozenset(data.get("mixed_devices") or []),
        host_on_trainium=_groups("host_on_trainium", data.get("host_on_trainium"), "source"),
    )
    _check(table, catalog)
    return table


def _check(table: Table, catalog: dict[str, Operator]) -> None:
    errors = [name for group in table.error for name in group.operators]
    sections = {
        "native": list(table.native),
        "metadata": sorted(table.metadata),
        "error": errors,
        "sparse_members": sorted(table.sparse_members),
        "deterministic": list(table.deterministic),
        "mixed_devices": sorted(table.mixed_devices),
    }
    for section, names in sections.items():
        for name in names:
            if name not in catalog:
                raise OpgenError(f"table section '{section}': the installed torch has no operator '{name}'")
    strategies: dict[str, str] = {}
    for section in ("native", "metadata", "error"):
        for name in sections[section]:
            if name in strategies:
                raise OpgenError(f"operator '{name}' is in table sections '{strategies[name]}' and '{section}'; it can have one strategy")
            strategies[name] = section
    for name in table.sparse_members:
        if not catalog[name].sparse:
            raise OpgenError(f"table section 'sparse_members': '{name}' has no kernel for sparse CPU tensors in the installed torch")
    for name in table.deterministic:
        if not catalog[name].random:
            raise OpgenError(f"table section 'deterministic': '{name}' is not tagged as random in the installed torch; drop the entry")
