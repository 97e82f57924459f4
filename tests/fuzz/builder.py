"""Turns recipes (an operator and some bytes, per step) into a program, running it on the CPU meanwhile to know every shape."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from .holes import Bound, fill
from .interpreter import evaluate, execute
from .operators import COMPILABLE, HOLE, OPERATORS, Operator
from .picker import Picker
from .program import HOST, VARIABLE, Program, Step
from .scope import Scope

Recipe = tuple[int, bytes]


@cache
def _pieces(template: str) -> tuple[tuple[str, str, str, tuple[str, ...]], ...]:
    """The template as (text before, name, kind, arguments of the kind), the last without a hole."""
    pieces, end = [], 0
    for match in HOLE.finditer(template):
        kind, *arguments = (match[2] or "").split(" ")
        pieces.append((template[end : match.start()], match[1], kind, tuple(arguments)))
        end = match.end()
    return (*pieces, (template[end:], "", "", ()))


def _code(scope: Scope, operator: Operator) -> str:
    """The operator's text with its holes filled. Holes that name a later one wait until that is filled."""
    pieces, bound, texts = _pieces(operator.template), Bound(), {}
    waiting = [piece for piece in pieces if piece[2]]
    while waiting:
        names = {piece[1] for piece in waiting}
        for piece in waiting:
            if not any(argument.partition(".")[0] in names - {piece[1]} for argument in piece[3]):
                texts[piece[1]] = fill(scope, bound, piece[1], piece[2], list(piece[3]))
                waiting.remove(piece)
                break
        else:
            raise AssertionError(f"holes of {operator.template!r} wait for each other")
    return "".join(before + texts.get(name, "") for before, name, _, _ in pieces)


def _add_step(scope: Scope, operator: Operator) -> Step | None:
    """Fill the template, run it on the CPU, and bind what comes out. None if a compiled program should not have this step."""
    code = _code(scope, operator)
    before = _sizes(scope)
    try:
        if not operator.expression:
            execute(Step(code), scope.names)
            step = Step(code)
        else:
            step = _bind(scope, operator, code, evaluate(code, scope.names))
    except Exception:
        if scope.compiled:
            return None
        step = Step(code, (scope.new_number(),)) if operator.expression else Step(code)
        return replace(step, spoils=_grown(scope, before, code, failed=True))
    return replace(step, spoils=_grown(scope, before, code, failed=False))


def _sizes(scope: Scope) -> dict[int, int]:
    """Bytes of the storages of all tensors."""
    return {number: scope.value(number).untyped_storage().nbytes() for number in scope.places}


def _grown(scope: Scope, before: dict[int, int], code: str, *, failed: bool) -> tuple[int, ...]:
    """Variables whose bytes a step may have left uninitialised: it grew them, and failed, or did not write them, or read them meanwhile."""
    grown = [number for number, size in before.items() if scope.value(number).untyped_storage().nbytes() > size]
    if not grown:
        return ()
    storages = {scope.value(number).untyped_storage()._cdata for number in grown}
    spoilt = [number for number in scope.places if scope.value(number).untyped_storage()._cdata in storages]
    written = "out=" in code or ".fill_(" in code
    names = VARIABLE.findall(code)
    if written and not failed and sum(int(name) in spoilt for name in names) == 1:
        return ()
    for number in spoilt:
        del scope.places[number]
    return tuple(spoilt)


def _bind(scope: Scope, operator: Operator, code: str, result: Any) -> Step:
    known = {id(scope.value(number)) for number in scope.places}
    unpack = isinstance(result, (tuple, list)) and any(isinstance(part, torch.Tensor) for part in result)
    parts = list(result) if unpack else [result]
    if result is None or all(id(part) in known for part in parts):  # written in place
        return Step(code)
    targets = tuple(scope.new_number() for _ in parts)
    for number, part in zip(targets, parts, strict=True):
        scope.names[f"v{number}"] = part
        if isinstance(part, torch.Tensor) and not operator.random:
            scope.places[number] = scope.result_place or scope.place or HOST
    return Step(code, targets, unpack, operator.random)


def build(recipes: Sequence[Recipe], compiled: bool = False) -> Program:
    """The program of these recipes. Choice 0 is no step, the others count operators from 1."""
    operators = COMPILABLE if compiled else OPERATORS
    scope, steps = Scope(compiled), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for choice, data in recipes:
            if choice:
                scope.begin(Picker(data))
                step = _add_step(scope, operators[choice - 1])
                steps += [step] if step is not None else []
    used = {number for step in steps for number in step.reads}
    return Program(tuple(given for given in scope.inputs if given.number in used), tuple(steps), compiled)
