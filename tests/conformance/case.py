"""A case of the suite (template x subject x dtype) and the registry in which templates enter theirs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator

import torch


class NothingToCompare(Exception):
    """Raised by a case that has no sample to compare; its text says why, and becomes the reason of a skip."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One statement about one subject.

    `run(most)` looks at no more than `most` samples (None: at all), returns the number of comparisons made, and raises AssertionError where
    the device differs from the CPU. `family` groups subjects in the report; `quick` marks the cases of the tier that `make test` runs.
    """

    template: str
    subject: str
    dtype: torch.dtype | None
    run: Callable[[int | None], int]
    family: str
    quick: bool

    @property
    def id(self) -> str:
        """`template/subject/dtype`, the name in expectations and results."""
        return f"{self.template}/{self.subject}" + (f"/{str(self.dtype).removeprefix('torch.')}" if self.dtype else "")


CaseSource = Callable[[], Iterable[Case]]
_sources: dict[str, CaseSource] = {}


def source(name: str) -> Callable[[CaseSource], CaseSource]:
    """Enter a function that yields the cases of a template; its docstring, or its module's, begins with the statement checked."""

    def enter(function: CaseSource) -> CaseSource:
        assert name not in _sources, f"two templates named {name}"
        _sources[name] = function
        return function

    return enter


def template_names() -> list[str]:
    """The templates."""
    from . import templates  # noqa: F401 - enters the sources

    return sorted(_sources)


def module_of(name: str) -> str:
    """The module that entered a template."""
    return _sources[name].__module__


def description_of(name: str) -> str:
    """The statement that a template checks."""
    function = _sources[name]
    text = function.__doc__ or sys.modules[function.__module__].__doc__ or ""
    return text.strip().splitlines()[0]


def all_cases(*, quick: bool) -> Iterator[Case]:
    """All cases, in an order that every process agrees on: by subject first, so that samples are made once."""
    from . import templates  # noqa: F401 - enters the sources

    cases = [case for name in sorted(_sources) for case in _sources[name]() if case.quick or not quick]
    return iter(sorted(cases, key=lambda case: (case.subject, str(case.dtype), case.template)))
