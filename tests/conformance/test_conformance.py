"""The cases as tests."""

from __future__ import annotations

import pytest

from .case import Case, NothingToCompare
from .operators import QUICK_SAMPLES


def test_case(case: Case, request: pytest.FixtureRequest, record_property) -> None:
    """The device does what the CPU does."""
    most = QUICK_SAMPLES if request.config.getoption("--tier") == "quick" else None
    try:
        compared = case.run(most)
    except NothingToCompare as nothing:
        pytest.skip(str(nothing))
    if not compared:
        pytest.skip("the database has no sample for this case")
    record_property("compared", int(compared))
    # Templates may say what became of samples of which there was nothing to compare (`compiled_trial.Comparisons`).
    record_property("others", getattr(compared, "others", {}))
