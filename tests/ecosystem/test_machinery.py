"""The machinery of the ecosystem suites: outcomes survive a crash, interrupted work goes on, and no loss goes unnoticed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ecosystem import expectations, measured, outcomes, paths
from tests.ecosystem.measured import State
from tests.ecosystem.outcomes import Outcome, compare
from tests.ecosystem.plugins.ecosystem_selection import Candidate, select
from tests.ecosystem.report import SuiteResult, _print_problems
from tests.ecosystem.runner import Job, Limits, is_finished, run_jobs
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


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_test_on_both_devices_that_on_neuron_counts(order: int) -> None:
    neuron = dict(list({"a[cpu]": PASSED, "a[neuron]": FAILED}.items())[::order])
    assert list(compare({"a[cpu]": PASSED}, neuron, {}).lost) == ["a[cpu]"]


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


def test_expectation_of_a_failure_is_about_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "expectations.yaml"
    file.write_text("- {suite: s, reason: r, failures: ['no such device$', 'nowhere']}\n", encoding="utf-8")
    monkeypatch.setattr(paths, "EXPECTATIONS", file)
    neuron = {
        "a[neuron]": Outcome("failed", "ValueError: no such device"),
        "b": Outcome("failed", "no such device, nor another"),
        "c": Outcome("skipped", "no such device"),
    }
    assert expectations.read_expectations("s", neuron) == ({"a[cpu]": "r"}, ["nowhere"])


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


def _record_earlier(unit: Unit, state: State) -> None:
    record = outcomes.record_file("suite", unit.name, "cpu")
    record.parent.mkdir(parents=True)
    line = '{"test": "test_foreign.py::test_passes", "outcome": "failed", "message": "of an earlier run", "seconds": 1.0}\n'
    record.write_text(line, encoding="utf-8")
    state.write(outcomes.state_file("suite", unit.name, "cpu"))


def test_recorded_outcomes_are_kept(unit: Unit) -> None:
    """A second run does not repeat what the first one recorded."""
    _record_earlier(unit, State.now(unit, "cpu"))
    assert _run(unit)["test_passes"].message == "of an earlier run"


@pytest.mark.parametrize("change", [{"key": "other tests"}, {"build": "other plugin"}])
def test_recorded_outcomes_of_another_state_are_forgotten(unit: Unit, change: dict[str, str]) -> None:
    _record_earlier(unit, replace(State.now(unit, "cpu"), **change))
    assert _run(unit)["test_passes"].outcome == "passed"


def test_what_ran_to_its_end_is_finished_for_its_state_only(unit: Unit) -> None:
    job = Job("suite", unit, "cpu")
    state = State.now(unit, "cpu")
    assert not is_finished(job)
    _record_earlier(unit, state)
    assert not is_finished(job)
    file = outcomes.state_file("suite", unit.name, "cpu")
    for change, finished, kept in (({}, True, True), ({"build": "other"}, False, True), ({"key": "other"}, False, False)):
        replace(state, finished=True, **change).write(file)
        assert is_finished(job) is finished
        assert is_finished(job, keep=True) is kept


def test_only_measurements_on_the_device_depend_on_the_plugin(unit: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = {device: State.now(unit, device) for device in ("cpu", "neuron")}
    monkeypatch.setattr(measured, "build_digest", lambda: "another build")
    assert State.now(unit, "cpu").continues(earlier["cpu"])
    assert not State.now(unit, "neuron").continues(earlier["neuron"])


def test_key_depends_on_the_selection_and_the_tests(unit: Unit, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("one", encoding="utf-8")
    units = [unit, replace(unit, environment={"ECOSYSTEM_PER_STRATUM": "2"}), replace(unit, definition=(file,))]
    keys = [measured.key_of(each) for each in units]
    file.write_text("two", encoding="utf-8")
    keys.append(measured.key_of(units[-1]))
    assert len(set(keys)) == 4


def test_own_test_that_fails_on_the_cpu_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    failing = SuiteResult(cpu={"a": FAILED})
    assert not _print_problems("timm", failing, whole=True)
    assert "BROKEN timm a" in capsys.readouterr().out
    assert _print_problems("peft", failing, whole=True)


CANDIDATES = [
    Candidate(f"test_{file}.py::test_{function}[{model}-{adapter}-{case}]", {"model_id": model, "config_cls": adapter})
    for file in "ab"
    for function in range(7)
    for model in ("llama", "opt", "t5")
    for adapter in ("LoRA", "IA3", "OFT", "BOFT")
    for case in range(5)
]


@pytest.mark.parametrize("per_stratum", [1, 2])
def test_selection_meets_every_combination(per_stratum: int) -> None:
    chosen = select(CANDIDATES, per_stratum)
    assert len(chosen) < len(CANDIDATES) / 4
    for left, right in (("function", "model"), ("model", "adapter")):
        met = Counter((part["file"], part[left], part[right]) for part in map(_parts, chosen))
        assert len(met) == len({(part["file"], part[left], part[right]) for part in (_parts(item.test) for item in CANDIDATES)})
        assert min(met.values()) >= per_stratum


def _parts(test: str) -> dict[str, str]:
    match = re.fullmatch(r"test_(?P<file>.)\.py::test_(?P<function>.)\[(?P<model>\w+)-(?P<adapter>\w+)-.\]", test)
    assert match is not None
    return match.groupdict()


def test_selection_is_the_same_in_any_order() -> None:
    assert select(CANDIDATES, 1) == select(reversed(CANDIDATES), 1)


def test_selection_takes_every_case_and_every_test_without_a_family() -> None:
    cases = [Candidate(f"f.py::test[{name}]", {"model_id": "MLP", "config_cls": "LoRA", "case": name}) for name in "abcdef"]
    lone = [Candidate(f"f.py::test_lone[{number}]") for number in range(9)]
    assert select([*cases, *lone], 1) == {candidate.test for candidate in (*cases, *lone)}


def test_selection_ignores_the_name_of_the_device() -> None:
    found = [
        {test.replace(device, "cpu") for test in select([Candidate(f"f.py::test[{device}-{n}]", {"model_id": "m"}) for n in range(50)], 3)}
        for device in ("cpu", "neuron")
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_selected_tests_run_and_the_extent_is_recorded(unit: Unit) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("model_id", ["opt", "llama"])
        @pytest.mark.parametrize("number", range(20))
        def test_many(number, model_id): pass
    """
    (unit.folder / "test_foreign.py").write_text(textwrap.dedent(source), encoding="utf-8")
    parts = [Unit(f"part{i}", unit.arguments, unit.folder, (), {"ECOSYSTEM_SHARD": f"{i}/2", "ECOSYSTEM_PER_STRATUM": "3"}) for i in (0, 1)]
    found = [test for part in parts for test in _run(part)]
    assert len(found) == len(set(found)) == 6
    extents = [outcomes.read_extent("suite", part.name, "cpu") for part in parts]
    assert sum(extent.collected for extent in extents) == 40
    assert sum(extent.selected for extent in extents) == 6
    assert all(extent.cpu_seconds > 0 for extent in extents)


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
