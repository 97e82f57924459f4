"""The machinery of the ecosystem suites: outcomes survive a crash, interrupted work goes on, and no loss goes unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.ecosystem import expectations, outcomes, paths
from tests.ecosystem.outcomes import Outcome, compare
from tests.ecosystem.runner import Job, Limits, run_jobs
from tests.ecosystem.suites import Unit

PASSED, FAILED = Outcome("passed"), Outcome("failed", "wrong")


def test_loss_is_reported() -> None:
    result = compare({"a": PASSED, "b": PASSED, "c": FAILED}, {"a": PASSED, "b": FAILED, "c": FAILED}, {})
    assert list(result.lost) == ["b"]
    assert not result.clean


def test_test_that_is_missing_on_neuron_is_a_loss() -> None:
    assert list(compare({"a": PASSED}, {}, {}).lost) == ["a"]


def test_expected_loss_is_none() -> None:
    result = compare({"b": PASSED}, {"b": FAILED}, {"b": "reason"})
    assert result.clean
    assert result.expected == {"b": "reason"}


def test_unexpected_pass_is_an_error() -> None:
    result = compare({"b": PASSED}, {"b": PASSED}, {"b": "reason"})
    assert result.unexpected_passes == ["b"]
    assert not result.clean


def test_device_in_a_test_id_is_ignored() -> None:
    assert compare({"a[cpu-1]": PASSED}, {"a[neuron-1]": PASSED}, {}).clean


def test_expectation_that_matches_no_test_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "expectations.yaml"
    file.write_text("- {suite: s, reason: r, tests: ['a.*', 'gone']}\n- {suite: other, reason: r, tests: [x]}\n", encoding="utf-8")
    monkeypatch.setattr(paths, "EXPECTATIONS", file)
    found = expectations.read_expectations("s", {"a1": FAILED, "a2": FAILED, "b": FAILED})
    assert found == ({"a1": "r", "a2": "r"}, ["gone"])


def test_expectation_of_a_skip_is_about_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "expectations.yaml"
    file.write_text("- {suite: s, reason: r, skips: ['only a CPU']}\n", encoding="utf-8")
    monkeypatch.setattr(paths, "EXPECTATIONS", file)
    neuron = {"a": Outcome("skipped", "test requires only a CPU"), "b": Outcome("skipped", "other"), "c": Outcome("failed", "only a CPU")}
    assert expectations.read_expectations("s", neuron) == ({"a": "r"}, [])


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unit:
    """A test file one of whose tests ends the process."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    source = """
        import os
        import pytest

        def test_passes(): pass
        def test_fails(): assert False, "as it should"
        def test_skips(): pytest.skip("no reason")
        def test_crashes(): os._exit(7)
        @pytest.mark.parametrize("number", range(20))
        def test_behind(number): pass
    """
    (tmp_path / "test_foreign.py").write_text(textwrap.dedent(source), encoding="utf-8")
    # Without the check of the device, which imports torch.
    settings = (paths.HERE / "foreign.ini").read_text(encoding="utf-8").replace("-p ecosystem_device_check", "")
    (tmp_path / "pytest.ini").write_text(settings, encoding="utf-8")
    return Unit("foreign", ("test_foreign.py",), tmp_path, sites=())


def _run(unit: Unit) -> dict[str, Outcome]:
    run_jobs([Job("suite", unit, "cpu")], Limits(), workers=1)
    found = outcomes.read_outcomes("suite", [unit.name], "cpu")
    return {test.removeprefix("test_foreign.py::"): outcome for test, outcome in found.items()}


def test_crash_costs_one_test(unit: Unit) -> None:
    found = _run(unit)
    assert {name: found[name].outcome for name in ("test_passes", "test_fails", "test_skips", "test_crashes")} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_crashes": "crashed",
    }
    assert "exit code 7" in found["test_crashes"].message
    assert "as it should" in found["test_fails"].message
    assert sum(name.startswith("test_behind") and outcome.outcome == "passed" for name, outcome in found.items()) == 20


def test_recorded_outcomes_are_kept(unit: Unit) -> None:
    """A second run does not repeat what the first one recorded."""
    record = outcomes.record_file("suite", unit.name, "cpu")
    record.parent.mkdir(parents=True)
    line = '{"test": "test_foreign.py::test_passes", "outcome": "failed", "message": "of an earlier run", "seconds": 1.0}\n'
    record.write_text(line, encoding="utf-8")
    assert _run(unit)["test_passes"].message == "of an earlier run"


def test_parts_of_a_file_make_up_the_whole(unit: Unit) -> None:
    names: list[str] = []
    for shard in range(2):
        part = Unit(f"part{shard}", (*unit.arguments, "-k", "behind"), unit.folder, (), {"ECOSYSTEM_SHARD": f"{shard}/2"})
        found = _run(part)
        assert 0 < len(found) < 20
        names += found
    assert len(names) == len(set(names)) == 20


@pytest.mark.parametrize(
    ("device", "autoload", "good"), [("cpu", "0", True), ("cpu", "1", False), ("neuron", "0", False), ("neuron", "1", True)]
)
def test_run_on_the_wrong_device_is_refused(device: str, autoload: str, good: bool) -> None:
    """A run for `neuron` in a process without the device would compare the CPU with itself."""
    code = "import ecosystem_device_check; ecosystem_device_check.pytest_sessionstart()"
    variables = {**os.environ, "ECOSYSTEM_DEVICE": device, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "PYTHONPATH": str(paths.PLUGINS)}
    result = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert (result.returncode == 0) == good, result.stderr
    assert good or f"this run is for {device}" in result.stderr
