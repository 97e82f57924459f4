"""The operator table and its generator against the installed torch: nothing drifts unseen, and bad tables are refused."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_neuronx

ROOT = Path(__file__).resolve().parents[2]
OPGEN = ROOT / "tools" / "opgen"
TABLE = ROOT / "src" / "torch" / "ops" / "table.yaml"
sys.path.insert(0, str(OPGEN))

from opgen.catalog import SPARSE_LAYOUTS, Operator, Signature, Wheel, load_catalog  # noqa: E402
from opgen.docs import read_verified, render_digest, render_docs  # noqa: E402
from opgen.emit import render, write_if_changed  # noqa: E402
from opgen.errors import OpgenError  # noqa: E402
from opgen.headers import declares  # noqa: E402
from opgen.strategy import REGISTERED, Plan, Strategy, make_plan  # noqa: E402
from opgen.table import Table, load_table  # noqa: E402

REFRESH = "`make docs`"
COMPOSITE_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    return Wheel.locate()


@pytest.fixture(scope="module")
def catalog(wheel: Wheel) -> dict[str, Operator]:
    return load_catalog(wheel)


@pytest.fixture(scope="module")
def table(catalog: dict[str, Operator]) -> Table:
    return load_table(TABLE, catalog)


@pytest.fixture(scope="module")
def plan(catalog: dict[str, Operator], table: Table, wheel: Wheel) -> Plan:
    return make_plan(catalog, table, wheel.include)


def has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key)


def overload(name: str) -> torch._ops.OpOverload:
    base, _, suffix = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), suffix or "default")


# --- drift: the committed files describe the installed torch ---


def test_digest_is_up_to_date(plan: Plan) -> None:
    expected = dict(line.split() for line in (OPGEN / "expected_ops.txt").read_text().splitlines())
    actual = dict(line.split() for line in render_digest(plan).splitlines())
    changed = {
        name: (expected.get(name), actual.get(name)) for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name)
    }
    assert not changed, f"review the changes, then run {REFRESH}"
    assert list(expected) == sorted(expected)


def test_docs_are_up_to_date(plan: Plan, table: Table, wheel: Wheel) -> None:
    assert (ROOT / "docs" / "operators.md").read_text() == render_docs(
        plan, table, wheel.torch_version, read_verified(ROOT / "tools" / "opgen" / "verified.txt")
    ), f"run {REFRESH}"


def test_docs_totals_cover_every_operator(plan: Plan) -> None:
    text = (ROOT / "docs" / "operators.md").read_text()
    totals = dict(re.findall(r"^\| `(\w+)` \| (\d+) \| [^|]*\|$", text, re.MULTILINE))
    assert set(totals) == {strategy.value for strategy in Strategy}
    assert sum(map(int, totals.values())) == len(plan.decisions)


# --- the catalog, read without torch, agrees with the dispatcher of the running torch ---


def test_catalog_has_the_dispatchers_operators(catalog: dict[str, Operator]) -> None:
    known = set(torch._C._dispatch_get_all_op_names())
    assert not [name for name in catalog if f"aten::{name}" not in known]


def test_cpu_kernels_agree_with_the_dispatcher(catalog: dict[str, Operator]) -> None:
    assert not [name for name, operator in catalog.items() if operator.cpu != has_kernel(name, "CPU")]


def test_composite_operators_have_a_decomposition(plan: Plan) -> None:
    composite = [name for name, decision in plan.decisions.items() if decision.strategy is Strategy.COMPOSITE]
    assert not [name for name in composite if not any(has_kernel(name, key) for key in COMPOSITE_KEYS)]


def test_error_operators_have_no_other_way_to_run(plan: Plan) -> None:
    errors = [name for name, decision in plan.decisions.items() if decision.strategy is Strategy.ERROR]
    assert not [name for name in errors if any(has_kernel(name, key) for key in COMPOSITE_KEYS)]
    assert all(plan.decisions[name].reason for name in errors)


# A question about tensor types in the form of an operator, answered by the device layer (src/torch/device/shallow_copy.cpp).
REGISTERED_BY_HAND = {"_has_compatible_shallow_copy_type"}


def test_registered_operators_are_in_the_plugin(plan: Plan) -> None:
    """The built plugin registered what the table says: the build is not older than the table."""
    wrong = {name for name, decision in plan.decisions.items() if has_kernel(name, "PrivateUse1") != (decision.strategy in REGISTERED)}
    assert wrong == REGISTERED_BY_HAND


def test_no_random_operator_runs_the_cpu_generator(plan: Plan, table: Table) -> None:
    aliased = [name for name, decision in plan.decisions.items() if decision.strategy is Strategy.ALIAS]
    random = {name for name in aliased if torch.Tag.nondeterministic_seeded in overload(name).tags}
    assert random <= set(table.deterministic)
    assert not [name for name in aliased if any("Generator" in str(argument.type) for argument in overload(name)._schema.arguments)]


def test_deterministic_operators_draw_nothing(table: Table) -> None:
    """The exceptions really leave the CPU generator alone."""
    assert set(table.deterministic) == {"_scaled_dot_product_flash_attention_for_cpu"}
    query = torch.rand(1, 2, 8, 4)
    before = torch.get_rng_state()
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, query, query)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(RuntimeError, match="dropout"):
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, query, query, 0.5)


def test_no_view_is_aliased(plan: Plan) -> None:
    aliased = [name for name, decision in plan.decisions.items() if decision.strategy is Strategy.ALIAS]
    views = [name for name in aliased for result in overload(name)._schema.returns if result.alias_info and not result.alias_info.is_write]
    assert not views


def test_sparse_kernels_are_those_of_the_cpu(plan: Plan) -> None:
    """Whatever the wheel has for sparse CPU tensors, and nothing else, is registered for the device's."""
    for layout in SPARSE_LAYOUTS:
        planned = {name for name, decisions in plan.sparse.items() if any(decision.layout == layout for decision in decisions)}
        on_cpu = {name for name in plan.decisions if has_kernel(name, f"{layout}CPU")}
        assert planned == on_cpu
        assert {name for name in plan.decisions if has_kernel(name, f"{layout}PrivateUse1")} == on_cpu


def test_no_random_sparse_operator_runs_the_cpu_generator(plan: Plan) -> None:
    aliased = [name for name, decisions in plan.sparse.items() if any(not decision.function for decision in decisions)]
    assert not [name for name in aliased if torch.Tag.nondeterministic_seeded in overload(name).tags]


# --- what is generated ---


def test_each_registered_operator_is_registered_once_under_its_index(plan: Plan) -> None:
    files = render(plan, 8)
    names = re.findall(r'^    \{"aten::([\w.]+)", (true|false)\},$', files["op_names.cpp"], re.MULTILINE)
    registrations = re.findall(
        r'library\.impl\("([\w.]+)", TORCH_FN\(\((?:Alias|Native|Metadata)Kernel<(\d+), ',
        "".join(text for name, text in files.items() if name.startswith("ops_")),
    )
    expected = {name for name, decision in plan.decisions.items() if decision.strategy in REGISTERED}
    assert sorted(name for name, _ in registrations) == sorted(expected)
    sparse = re.findall(r'library\.impl\("([\w.]+)", .*?(?:run_sparse|SparseMembersKernel)<(\d+), ', files["ops_sparse.cpp"])
    assert sorted(name for name, _ in sparse) == sorted(name for name, decisions in plan.sparse.items() for _ in decisions)
    assert all(names[int(index)][0] == name for name, index in [*registrations, *sparse])
    assert {name for name, host in names if host == "true"} == {d.operator.name for d in plan.indexed if d.host_on_trainium}


def test_registered_operators_are_counted(plan: Plan) -> None:
    """The indices in the plugin lead to the names: an operator is reported under its own name, and as Trainium's host fallback if it is."""
    index = torch.arange(2, device="neuron")
    value = torch.ones(3, device="neuron")
    torch.neuron.synchronize()
    torch_neuronx.clear_op_tracking()
    torch.index_select(value, 0, index)
    value.view(3, 1)
    torch.exp(value)
    executed, fallback = set(torch_neuronx.get_executed_ops()), set(torch_neuronx.get_fallback_ops())
    assert {"aten::index_select", "aten::exp", "aten::view"} <= executed
    assert plan.decisions["index_select"].host_on_trainium
    assert fallback == {"aten::index_select"}


def test_shards_are_balanced(plan: Plan) -> None:
    counts = [text.count("library.impl(") for name, text in render(plan, 8).items() if re.match(r"ops_\d", name)]
    assert len(counts) == 8
    assert max(counts) < 1.5 * min(counts)


def test_moving_one_operator_rebuilds_one_shard(catalog: dict[str, Operator], table: Table, plan: Plan, wheel: Wheel) -> None:
    name = "exp.out"
    assert plan.decisions[name].strategy is Strategy.ALIAS
    moved = make_plan(catalog, dataclasses.replace(table, native={**table.native, name: "exp_out"}), wheel.include)
    before, after = render(plan, 8), render(moved, 8)
    changed = [file for file in before if before[file] != after[file]]
    assert len(changed) == 1
    assert "at::Tensor & exp_out(const at::Tensor & self, at::Tensor & out);" in after[changed[0]]


def run_generator(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(OPGEN / "generate.py"), *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=120)


def test_second_run_writes_nothing(tmp_path: Path) -> None:
    table = tmp_path / "table.yaml"
    table.write_text(TABLE.read_text())
    arguments = (
        "--table",
        table,
        "--output",
        tmp_path / "out",
        "--shards",
        "3",
        "--docs",
        tmp_path / "operators.md",
        "--digest",
        tmp_path / "ops.txt",
    )
    listed = run_generator("--table", table, "--output", tmp_path / "out", "--shards", "3", "--list-outputs").stdout.split()
    run_generator(*arguments)
    written = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert sorted(map(str, (tmp_path / "out").iterdir())) == sorted(listed)
    for path in written:
        os.utime(path, ns=(10**18, 10**18))
    (tmp_path / "out" / "ops_3.cpp").write_text("of an earlier run with more shards")
    run_generator(*arguments)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == written
    assert {path.stat().st_mtime_ns for path in written} == {10**18}


def test_write_if_changed_writes_changes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert write_if_changed(path, "a")
    assert not write_if_changed(path, "a")
    assert write_if_changed(path, "b")
    assert path.read_text() == "b"


def test_generator_does_not_import_torch() -> None:
    code = f"""
import runpy, sys
sys.argv = ["generate.py", "--table", {str(TABLE)!r}]
try:
    runpy.run_path({str(OPGEN / "generate.py")!r}, run_name="__main__")
except SystemExit as done:
    assert not done.code
assert "torch" not in sys.modules and "torchgen" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_inputs_are_listed() -> None:
    inputs = [Path(line) for line in run_generator("--table", TABLE, "--list-inputs").stdout.splitlines()]
    assert all(path.is_file() for path in inputs)
    assert {TABLE.name, "native_functions.yaml", "tags.yaml", "generate.py", "strategy.py"} <= {path.name for path in inputs}


# --- tables that do not fit are refused, naming the operator ---


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  copy_: copy_\n", "  copy_: copy_\n  no_such_op: f\n", r"'native'.*'no_such_op'"),
        ("  copy_: copy_\n", "  copy_: copy_\n  copy_: copy\n", r"'copy_' is listed twice"),
        ("  copy_: copy_\n", "  copy_: copy_\n  view: view\n", r"'view' is in table sections 'native' and 'metadata'"),
        ("  copy_: copy_\n", "  copy_: copy_\n  matmul: matmul\n", r"'matmul' is CompositeImplicitAutograd"),
        ("  - as_strided\n", "", r"view operator 'as_strided'"),
        ("  - as_strided\n", "  - as_strided\n  - select.int\n", r"'select.int' has no CPU kernel"),
        ("sparse_members:\n", "sparse_members:\n  - exp\n", r"'sparse_members'.*'exp' has no kernel for sparse"),
        ("  - normal_\n", "", r"random operator 'normal_'.*'sparse_members'"),
        ("deterministic:\n", "deterministic:\n  exp: exact\n", r"'exp' is not tagged as random"),
        ("mixed_devices:\n", "mixed_devices:\n  - view\n", r"'mixed_devices'.*'view' runs as metadata"),
        ("host_on_trainium:\n", "host_on_trainium:\n  - {source: none, ops: [frobnicate_*]}\n", r"'frobnicate_\*' matches no operator"),
        ("host_on_trainium:\n", "host_on_trainium:\n  - {source: none, ops: [matmul]}\n", r"'matmul' matches no operator"),
        ("host_on_trainium:\n", "host_on_trainium:\n  - {ops: [add]}\n", r"needs exactly 'source:' and 'ops:'"),
        ("metadata:\n", "extra: {}\nmetadata:\n", r"unknown sections \['extra'\]"),
    ],
)
def test_bad_table_is_refused(tmp_path: Path, catalog: dict[str, Operator], wheel: Wheel, old: str, new: str, message: str) -> None:
    text = TABLE.read_text()
    assert text.count(old) == 1
    bad = tmp_path / "table.yaml"
    bad.write_text(text.replace(old, new))
    with pytest.raises(OpgenError, match=message):
        make_plan(catalog, load_table(bad, catalog), wheel.include)


def test_random_operator_cannot_become_an_alias(catalog: dict[str, Operator], table: Table, wheel: Wheel) -> None:
    without = dataclasses.replace(
        table,
        native={name: function for name, function in table.native.items() if name != "normal_"},
        error=tuple(dataclasses.replace(group, operators=tuple(n for n in group.operators if n != "normal_")) for group in table.error),
    )
    with pytest.raises(OpgenError, match=r"random operator 'normal_'"):
        make_plan(catalog, without, wheel.include)


def test_missing_symbol_is_found(wheel: Wheel, catalog: dict[str, Operator]) -> None:
    header = wheel.include / "ATen" / "ops" / "index_select_cpu_dispatch.h"
    signature = catalog["index_select"].signature
    assert declares(header, "index_select", signature)
    assert not declares(header, "index_select_", signature)
    assert not declares(header, "index_select", dataclasses.replace(signature, returns="at::Tensor &"))
    fewer = Signature(signature.returns, signature.argument_types[:-1], signature.argument_names[:-1])
    assert not declares(header, "index_select", fewer)
    assert not declares(header.with_name("no_such_header.h"), "index_select", signature)


def test_command_line_reports_a_bad_table(tmp_path: Path) -> None:
    bad = tmp_path / "table.yaml"
    bad.write_text("native: {no_such_op: f}\n")
    result = run_generator("--table", bad, "--output", tmp_path / "out", check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("opgen: table section 'native'")
    assert not (tmp_path / "out").exists()
