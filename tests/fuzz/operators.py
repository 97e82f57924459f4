"""The operators that programs are made of, as templates; `holes.py` says what the braces mean.

A template is an expression (its results become variables) or a statement. Families come in the order in which shrinking prefers them.
"""

import re
from dataclasses import dataclass

from .templates_compute import CASTS, FOREACH, MATRIX, NETWORK, ORDERING, POINTWISE, REDUCE
from .templates_memory import FACTORIES, GATHER, JOINS, MOVES, OUTS, SPLITS, VIEWS, WRITES
from .templates_state import AUTOGRAD, RANDOM, SCALARS, STORAGE

HOLE = re.compile(r"\{(\w+)(?::([^}]*))?\}")


@dataclass(frozen=True)
class Operator:
    """One template with what the generator must know about it."""

    template: str
    family: str
    eager: bool = False  # makes no sense inside a compiled function
    random: bool = False  # the values are not specified

    @property
    def expression(self) -> bool:
        """Whether the template has results that can be bound."""
        try:
            compile(HOLE.sub("x", self.template), "<template>", "eval")
        except SyntaxError:
            return False
        return True


# Family, templates, whether only eager programs have them, how often relative to the others.
_TABLE = (
    ("pointwise", POINTWISE, False, 2),
    ("views", VIEWS, False, 5),
    ("writes", WRITES, False, 3),
    ("reduce", REDUCE, False, 2),
    ("casts", CASTS, False, 3),
    ("joins", JOINS, False, 3),
    ("splits", SPLITS, False, 4),
    ("factories", FACTORIES, False, 2),
    ("matrix", MATRIX, False, 2),
    ("network", NETWORK, False, 2),
    ("gather", GATHER, False, 2),
    ("ordering", ORDERING, False, 2),
    ("foreach", FOREACH, False, 1),
    ("moves", MOVES, False, 5),
    ("scalars", SCALARS, True, 2),
    ("outs", OUTS, True, 3),
    ("autograd", AUTOGRAD, True, 5),
    ("storage", STORAGE, True, 2),
    ("random", RANDOM, True, 2),
)

OPERATORS: tuple[Operator, ...] = tuple(
    Operator(template, family, eager, random=family == "random")
    for family, templates, eager, weight in _TABLE
    for template in templates
    for _ in range(weight)
)
COMPILABLE: tuple[Operator, ...] = tuple(operator for operator in OPERATORS if not operator.eager)
