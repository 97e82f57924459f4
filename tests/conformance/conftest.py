"""Options of the suite, one test item for each case, and outcomes on disk.

`--tier quick` (default) or `full`; `--shard 2/5`; `--resume`: cases that have an outcome with this very build are not run again;
`--any-build`: nor those that have passed with another one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest
import torch

from .case import Case, all_cases
from .expectations import expectation_for
from .results import Recorder, Results, good_rows_of_any_build


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--tier", choices=("quick", "full"), default="quick", help="quick: a few samples and dtypes; full: everything")
    group.addoption("--shard", default="1/1", help="K/N: only the K-th of N parts")
    group.addoption("--resume", action="store_true", help="skip cases whose outcome with this build is on disk")
    group.addoption("--any-build", action="store_true", help="skip cases that have passed with any build")


def shard(config: pytest.Config) -> tuple[int, int]:
    """The part to run, and the number of parts."""
    part, _, parts = config.getoption("--shard").partition("/")
    return int(part), int(parts)


def chosen(config: pytest.Config) -> Iterable[Case]:
    """The cases of this run. All cases of a subject are in one part, so that its samples are made once."""
    part, parts = shard(config)
    tier = config.getoption("--tier")
    known = Results(tier).rows() if config.getoption("--resume") else {}
    if config.getoption("--any-build"):
        known |= good_rows_of_any_build(tier)
    for case in all_cases(quick=tier == "quick"):
        if zlib.crc32(case.subject.encode()) % parts == part - 1 and case.id not in known:
            yield case


def marks_of(case: Case, tier: str) -> tuple[pytest.MarkDecorator, ...]:
    """What `expectations.yaml` says of a case."""
    expected = expectation_for(case.id, tier)
    if expected is None:
        return ()
    return (pytest.mark.skip(reason=expected.reason) if expected.skip else pytest.mark.xfail(reason=expected.reason, strict=True),)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        tier = metafunc.config.getoption("--tier")
        metafunc.parametrize("case", [pytest.param(case, id=case.id, marks=marks_of(case, tier)) for case in chosen(metafunc.config)])


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tensors are tiny, and several processes share the machine."""
    torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config.getoption("--tier"), shard(config)[0]))
