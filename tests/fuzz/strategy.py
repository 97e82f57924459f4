"""Hypothesis strategies of programs.

A recipe whose choice shrinks to 0 is no step; the other steps count variables from the newest, so most keep their meaning. Lists of a fixed
length, because those of free length are mostly short.
"""

from hypothesis import strategies

from .builder import build
from .operators import COMPILABLE, OPERATORS
from .program import Program

STEPS = 14
_BYTES = strategies.binary(min_size=20, max_size=20)


def programs(compiled: bool = False, steps: int = STEPS) -> strategies.SearchStrategy[Program]:
    """Programs of about `steps` operators, for running step by step or as one compiled function."""
    operators = COMPILABLE if compiled else OPERATORS
    recipe = strategies.tuples(strategies.integers(0, len(operators)), _BYTES)
    return strategies.lists(recipe, min_size=steps, max_size=steps).map(lambda recipes: build(recipes, compiled))
