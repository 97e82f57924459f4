"""The holes of operator templates: `{a:float 2}` is a tensor, `{d:dim a}` one of its dimensions, and so on.

Each kind is a function of the scope, what the template has bound so far, and the kind's arguments; it gives the text to put in.
Now and then a hole is filled with something that does not fit, so that errors are compared too.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from .program import DEV, HOST, OTHER
from .scope import FAMILIES, Scope
from .shapes import broadcasts, has_history, ranks

Bound = dict[str, Any]
Filler = Callable[..., str]
HOLES: dict[str, Filler] = {}

# Percent of holes that are filled with something that (usually) does not fit.
ILL = 2


def hole(function: Filler) -> Filler:
    """Register a kind of hole under the function's name without underscores at its end."""
    HOLES[function.__name__.rstrip("_")] = function
    return function


def fill(scope: Scope, bound: Bound, name: str, kind: str, arguments: list[str]) -> str:
    """Fill one hole, and remember under its name what it holds."""
    if kind in FAMILIES:
        return tensor(scope, bound, name, kind, *arguments)
    return HOLES[kind](scope, bound, name, *arguments)


def bind(scope: Scope, bound: Bound, name: str, number: int) -> str:
    """Take a variable as the tensor of this hole."""
    bound[name] = scope.use(number)
    return f"v{number}"


def tensor(scope: Scope, bound: Bound, name: str, family: str, rank: str = "0+") -> str:
    """A tensor of a family of dtypes and some rank: one of the program's, or a new input."""
    pick, dtypes, (low, high) = scope.pick, FAMILIES[family], ranks(rank)
    ill = pick.chance(ILL) and not scope.compiled
    found = scope.tensors(lambda value: ill or (value.dtype in dtypes and low <= value.dim() <= high))
    if found and not pick.chance(25):
        return bind(scope, bound, name, pick.early(found))
    return bind(scope, bound, name, scope.new_input(pick.of(dtypes), scope.random_shape(low, high)))


@hole
def leaf(scope: Scope, bound: Bound, name: str) -> str:
    """A tensor that collects gradients."""
    found = scope.tensors(lambda value: value.requires_grad and not has_history(value))
    return bind(scope, bound, name, scope.pick.early(found)) if found else tensor(scope, bound, name, "float")


@hole
def graph(scope: Scope, bound: Bound, name: str) -> str:
    """A tensor that has a history, if there is one."""
    found = scope.tensors(has_history)
    return bind(scope, bound, name, scope.pick.early(found)) if found else tensor(scope, bound, name, "float")


@hole
def like(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """A tensor of the same shape and dtype as another."""
    return same(scope, bound, name, model, "")


@hole
def same(scope: Scope, bound: Bound, name: str, model: str, family: str = "any") -> str:
    """A tensor of the same shape as another, of any dtype of the family."""
    other = bound[model]
    dtypes = FAMILIES[family] if family else (other.dtype,)
    found = scope.tensors(lambda value: value.shape == other.shape and value.dtype in dtypes)
    found.sort(key=lambda number: scope.value(number) is other)  # the model itself last
    if found and not scope.pick.chance(30):
        return bind(scope, bound, name, scope.pick.early(found))
    return bind(scope, bound, name, scope.new_input(scope.pick.of(dtypes), other.shape))


@hole
def cast(scope: Scope, bound: Bound, name: str, model: str, family: str = "num") -> str:
    """An operand that broadcasts with another: a Python number, a tensor of the program, a 0-d host tensor, or a new input."""
    other, pick = bound[model], scope.pick
    way = pick.number(0, 15)
    if way < 4:
        return number(scope, bound, name, model)
    if way == 4:
        bound[name] = torch.tensor(2.5)
        return "torch.tensor(2.5)"
    dtypes = FAMILIES[family] if way < 9 else (other.dtype,)
    found = scope.tensors(lambda value: value.dtype in dtypes and broadcasts(value.shape, other.shape))
    if found and way < 13:
        return bind(scope, bound, name, pick.early(found))
    shape = [1 if pick.chance(25) else size for size in other.shape[pick.of((0, 0, 1, 2)) :]]
    return bind(scope, bound, name, scope.new_input(pick.of(dtypes), shape))


@hole
def mask(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """A bool tensor that broadcasts to another."""
    other = bound[model]
    found = scope.tensors(lambda value: value.dtype == torch.bool and broadcasts(value.shape, other.shape))
    if found and not scope.pick.chance(30):
        return bind(scope, bound, name, scope.pick.early(found))
    shape = [1 if scope.pick.chance(20) else size for size in other.shape[scope.pick.of((0, 0, 1)) :]]
    return bind(scope, bound, name, scope.new_input(torch.bool, shape))


@hole
def t(scope: Scope, bound: Bound, name: str, model: str, *sizes: str) -> str:
    """A tensor of another's dtype (or of a named family) and given sizes: `a.-1` is a size of `a`, `*` any, `n*` any named `n`."""
    dtype = bound[model].dtype if model in bound else FAMILIES[model][0]
    shape = shape_of(scope, bound, sizes)
    if scope.pick.chance(ILL) and not scope.compiled:
        shape = shape[:-1]
    found = scope.tensors(lambda value: list(value.shape) == shape and value.dtype == dtype)
    if found and not scope.pick.chance(25):
        return bind(scope, bound, name, scope.pick.early(found))
    return bind(scope, bound, name, scope.new_input(dtype, shape))


@hole
def index(scope: Scope, bound: Bound, name: str, model: str, dim: str, *sizes: str) -> str:
    """An int64 tensor of the given sizes whose values index dimension `dim` of the model (a number, or the name of a hole)."""
    other, pick = bound[model], scope.pick
    at = bound[dim] if dim in bound else int(dim)
    limit = other.shape[at] if other.dim() and -other.dim() <= at < other.dim() else 1
    sizes_ = [min(size, pick.number(1, 3)) for size in other.shape] if sizes == ("within",) else shape_of(scope, bound, sizes)
    count, start = math.prod(sizes_), pick.byte()
    if limit == 0:
        return bind(scope, bound, name, scope.new_input(torch.int64, [0 if size else size for size in sizes_], []))
    values = [(start + place * (1 + start % 3)) % limit for place in range(count)]
    if values and pick.chance(ILL) and not scope.compiled:
        values[0] = limit
    return bind(scope, bound, name, scope.new_input(torch.int64, sizes_, values))


@hole
def tensors(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """One to three tensors of the shape and dtype of another, in brackets."""
    count = scope.pick.number(1, 3)
    return f"[{', '.join(same(scope, bound, f'{name}{place}', model, '') for place in range(count))}]"


@hole
def out(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """Somewhere to write a result to: a tensor of any shape, and of any dtype or that of the model."""
    pick, wanted = scope.pick, bound[model].dtype
    if pick.chance(40):
        return tensor(scope, bound, name, "any")
    found = scope.tensors(lambda value: value.dtype == wanted and value is not bound[model])
    if found and not pick.chance(25):
        return bind(scope, bound, name, pick.early(found))
    return bind(scope, bound, name, scope.new_input(wanted, scope.random_shape()))


@hole
def move(scope: Scope, bound: Bound, name: str) -> str:
    """A place to move to, with the other arguments of `Tensor.to`."""
    target = scope.pick.of((DEV, OTHER, HOST, DEV))
    flags = ", non_blocking=True" if scope.pick.chance(30) else ""
    if target != scope.place:
        scope.result_place = target
        return f"{target}{flags}, copy=copy"
    return f"{target}{flags}, copy=True" if scope.pick.chance(30) else f"{target}{flags}"


@hole
def host(scope: Scope, bound: Bound, name: str) -> str:
    """A call that moves to the host; the step's results are there."""
    scope.result_place = HOST
    return f".to({HOST}, copy=copy)" if scope.place != HOST else ".cpu()"


@hole
def here(scope: Scope, bound: Bound, name: str) -> str:
    """The place of the step's operands."""
    if scope.place is None:
        scope.place = DEV
    return scope.place


@hole
def dim(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """A dimension of a tensor, also counted from the end."""
    rank = max(bound[model].dim(), 1)
    value = scope.pick.number(0, 2 * rank - 1)
    ill = scope.pick.chance(ILL) and not scope.compiled
    bound[name] = rank if ill else value - 2 * rank if value >= rank else value
    return str(bound[name])


@hole
def dims(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """Some of the dimensions."""
    rank = bound[model].dim()
    chosen = [place for place in range(rank) if scope.pick.chance(50)]
    bound[name] = chosen or ([rank - 1] if rank else [])
    return repr(tuple(bound[name]))


@hole
def perm(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """An order of the dimensions."""
    left = list(range(bound[model].dim()))
    order = [left.pop(scope.pick.byte() % len(left)) for _ in range(len(left))]
    return repr(tuple(order))


@hole
def number(scope: Scope, bound: Bound, name: str, model: str = "") -> str:
    """A Python number; usually of the model's kind, so that the result keeps its dtype."""
    text = scope.pick.of(("2", "0.5", "-1", "3", "1", "True", "-1.5", "0", "2", "0.5", "1.5", "2j"))
    bound[name] = eval(text)
    return text


@hole
def whole(scope: Scope, bound: Bound, name: str, low: str, high: str) -> str:
    """A whole number between the two."""
    bound[name] = scope.pick.number(int(low), int(high))
    return str(bound[name])


@hole
def one(scope: Scope, bound: Bound, name: str, *choices: str) -> str:
    """One of the given words."""
    return scope.pick.of(choices)


@hole
def flag(scope: Scope, bound: Bound, name: str) -> str:
    """False or True."""
    return scope.pick.of(("False", "True"))


@hole
def dtype(scope: Scope, bound: Bound, name: str, family: str = "any") -> str:
    """A dtype of a family."""
    return str(scope.pick.of(FAMILIES[family]))


@hole
def shape(scope: Scope, bound: Bound, name: str) -> str:
    """Any small shape."""
    return repr(tuple(scope.random_shape()))


@hole
def sizes(scope: Scope, bound: Bound, name: str, *parts: str) -> str:
    """A shape of given sizes, written as for `t`."""
    return repr(tuple(shape_of(scope, bound, parts)))


@hole
def view(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """Another shape for the same elements."""
    count = bound[model].numel()
    options = [(count,), (-1,)] if count else [(0,), (0, 2)]
    options += [(size, count // size) for size in (2, 3, 4, 1) if count and count % size == 0]
    options += [(-1, 1, size) for size in (2, 3) if count and count % size == 0]
    options += [tuple(reversed(bound[model].shape)), (count + 1,)]
    return repr(scope.pick.early(options))


@hole
def expanded(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """A shape that a tensor broadcasts to."""
    sizes_ = [scope.pick.number(2, 3) if size == 1 else -1 for size in bound[model].shape]
    return repr(tuple([scope.pick.number(2, 3)] * scope.pick.number(0, 1) + sizes_) or (2,))


@hole
def item(scope: Scope, bound: Bound, name: str, model: str) -> str:
    """What goes into the brackets of basic or advanced indexing."""
    parts, used = [], 0
    sizes_ = bound[model].shape
    while used < len(sizes_) and not (parts and scope.pick.chance(40)):
        size, way = sizes_[used], scope.pick.number(0, 11)
        if way in (0, 1, 2) or size == 0:
            parts.append(scope.pick.of((":", "1:", ":-1", "::2", "1:3", ":1", "-2:")))
        elif way in (3, 4):
            parts.append(str(scope.pick.number(-size, size - (0 if scope.pick.chance(ILL) and not scope.compiled else 1))))
        elif way == 5:
            parts.append("None")
            used -= 1 if len(parts) < 5 else 0
        elif way == 6 and "..." not in parts:
            parts.append("...")
            used = max(used, len(sizes_) - scope.pick.number(0, 1)) - 1
        elif way in (7, 8):
            parts.append(index(scope, bound, name, model, str(used), *(["2"], ["*"], ["2", "1"])[scope.pick.number(0, 2)]))
        elif way == 9:
            parts.append(repr([scope.pick.number(0, size - 1) for _ in range(2)]))
        else:
            parts.append(t(scope, bound, name, "bool", str(size)))
        used += 1
    if not parts:
        return scope.pick.of(("...", "None", "()"))
    return ", ".join(parts)


def shape_of(scope: Scope, bound: Bound, parts: tuple[str, ...]) -> list[int]:
    """Sizes from their written form."""
    sizes_ = []
    for part in parts:
        if part == "*":
            sizes_.append(scope.size())
        elif part.endswith("*"):
            sizes_.append(bound.setdefault(part[:-1], scope.size()))
        elif part in bound and isinstance(bound[part], int):
            sizes_.append(bound[part])
        elif "." in part:
            model, at = part.split(".")
            shape_ = bound[model].shape
            sizes_.append(shape_[int(at)] if -len(shape_) <= int(at) < len(shape_) else 1)
        else:
            sizes_.append(int(part))
    return sizes_
