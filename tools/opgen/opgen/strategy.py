"""Decides for every operator how `neuron` runs it, and numbers the operators that get a registration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .catalog import Operator
from .errors import OpgenError
from .headers import declares, overloads
from .table import Table, matches


class Strategy(str, Enum):
    """How an operator runs; docs/architecture.md explains each."""

    METADATA = "metadata"
    ALIAS = "alias"
    NATIVE = "native"
    COMPOSITE = "composite"
    ERROR = "error"


REGISTERED = frozenset({Strategy.METADATA, Strategy.ALIAS, Strategy.NATIVE})


@dataclass(frozen=True)
class Decision:
    """An operator with its strategy. `function` and `header` are the C++ function to register and the ATen header that declares it."""

    operator: Operator
    strategy: Strategy
    reason: str = ""
    function: str = ""
    header: str = ""
    mixed_devices: bool = False
    host_on_trainium: bool = False


@dataclass(frozen=True)
class SparseDecision:
    """How an operator runs on sparse tensors of one layout: PyTorch's kernel on aliases, or `function` of `header` on device tensors."""

    layout: str
    function: str = ""
    header: str = ""
    symbolic: bool = False


@dataclass(frozen=True)
class Plan:
    """All decisions in alphabetical order, and the registered ones in OpIndex order.

    `indexed` starts with every operator that has a CPU kernel (whatever its strategy) and ends with native and sparse operators that have
    none, so moving an operator between strategies, or adding a native one, leaves almost every index alone and rebuilds one shard.
    """

    decisions: dict[str, Decision]
    indexed: tuple[Decision, ...]
    cpu_count: int
    sparse: dict[str, tuple[SparseDecision, ...]]


def _decide(operator: Operator, table: Table) -> tuple[Strategy, str]:
    name = operator.name
    if name in table.native:
        if operator.composite_implicit and not operator.cpu:
            raise OpgenError(f"native operator '{name}' is CompositeImplicitAutograd: an own kernel would take its autograd formula away")
        return Strategy.NATIVE, ""
    if name in table.metadata:
        return Strategy.METADATA, ""
    reason = table.error_reason(name)
    if reason is not None:
        return Strategy.ERROR, reason
    if not operator.cpu:
        if operator.composite:
            return Strategy.COMPOSITE, ""
        reason = "PyTorch has it for sparse tensors only" if operator.sparse else "PyTorch has no CPU kernel and no decomposition"
        return Strategy.ERROR, reason
    if operator.view:
        raise OpgenError(f"view operator '{name}' has a CPU kernel: list it under 'metadata', 'native' or 'error' in the table")
    if operator.random and name not in table.deterministic:
        raise OpgenError(f"random operator '{name}' must not run the CPU's generator: list it under 'native' or 'error' in the table")
    return Strategy.ALIAS, ""


def _resolve(operator: Operator, strategy: Strategy, table: Table, include: Path) -> tuple[str, str]:
    """Return the qualified C++ function and its header; raises when the wheel does not declare it with the dispatcher's signature."""
    if strategy is Strategy.NATIVE:
        return f"neuron::ops::{table.native[operator.name]}", ""
    if strategy is Strategy.ALIAS:
        namespace, name, suffix = "at::cpu", operator.cpu_function, "_cpu_dispatch.h"
    else:
        if operator.cpu_kernel is None:
            raise OpgenError(f"metadata operator '{operator.name}' has no CPU kernel of its own in the installed torch")
        namespace, name, suffix = "at::native", operator.cpu_kernel, "_native.h"
    header = f"ATen/ops/{operator.root}{suffix}"
    if not declares(include / header, name, operator.signature):
        found = "; ".join(overloads(include / header, name)) or "nothing of that name"
        raise OpgenError(
            f"operator '{operator.name}': {header} does not declare {namespace}::{name} as {operator.signature.pointer()}; found: {found}"
        )
    return f"{namespace}::{name}", header


def _decide_sparse(operator: Operator, table: Table, include: Path) -> tuple[SparseDecision, ...]:
    if operator.name not in table.sparse_members:
        if operator.sparse and operator.random:
            raise OpgenError(f"random operator '{operator.name}' must not run the CPU's generator: list it under 'sparse_members'")
        return tuple(SparseDecision(layout) for layout in operator.sparse)
    decisions = []
    header = f"ATen/ops/{operator.root}_native.h"
    for layout, kernel in operator.sparse.items():
        symbolic = kernel.endswith("_symint")
        if not declares(include / header, kernel, operator.symbolic_signature if symbolic else operator.signature):
            raise OpgenError(f"operator '{operator.name}': {header} does not declare at::native::{kernel} as the dispatcher calls it")
        decisions.append(SparseDecision(layout, f"at::native::{kernel}", header, symbolic))
    return tuple(decisions)


def _check_host_patterns(decisions: dict[str, Decision], table: Table) -> None:
    """Refuse patterns that name only decomposed operators: those are not counted, so they would never be reported."""
    registered = [decision.operator for decision in decisions.values() if decision.strategy in REGISTERED]
    for group in table.host_on_trainium:
        for pattern in group.operators:
            if not any(matches(pattern, operator) for operator in registered):
                raise OpgenError(f"table section 'host_on_trainium': '{pattern}' matches no operator that gets a registration")


def make_plan(catalog: dict[str, Operator], table: Table, include: Path) -> Plan:
    """Decide every operator of the catalog. Raises OpgenError for what the table leaves open or gets wrong."""
    decisions = {}
    for name, operator in catalog.items():
        strategy, reason = _decide(operator, table)
        function, header = _resolve(operator, strategy, table, include) if strategy in REGISTERED else ("", "")
        mixed = name in table.mixed_devices
        if mixed and strategy is not Strategy.ALIAS:
            raise OpgenError(f"table section 'mixed_devices': '{name}' runs as {strategy.value}, the entry has no effect")
        decisions[name] = Decision(operator, strategy, reason, function, header, mixed, table.runs_on_host(operator))
    _check_host_patterns(decisions, table)
    cpu = [decision for decision in decisions.values() if decision.operator.cpu]
    without = [decision for decision in decisions.values() if not decision.operator.cpu]
    extra = [decision for decision in without if decision.strategy in REGISTERED or decision.operator.sparse]
    sparse = {name: _decide_sparse(operator, table, include) for name, operator in catalog.items() if operator.sparse}
    return Plan(decisions, tuple(cpu + extra), len(cpu), sparse)
