"""Environment variables that describe the device, good and bad, each in a process of its own."""

import json
from typing import Any

import pytest

GOOD_VALUES = [
    ({"NEURON_RT_VISIBLE_CORES": "2"}, 1),
    ({"NEURON_RT_VISIBLE_CORES": "1-3"}, 3),
    ({"NEURON_RT_VISIBLE_CORES": "0,1"}, 2),
    ({"NEURON_RT_NUM_CORES": "3"}, 3),
    ({"NEURON_RT_NUM_CORES": "0"}, 4),
    ({"NEURON_RT_VISIBLE_CORES": "0", "NEURON_RT_NUM_CORES": "3"}, 1),
    ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
    ({"NEURON_RT_VIRTUAL_CORE_SIZE": "1"}, 8),
    ({"SOFTNEURON_INSTANCE_TYPE": "trn2.48xlarge"}, 64),
    ({"SOFTNEURON_INSTANCE_TYPE": "trn1.2xlarge"}, 2),
]
BAD_VALUES = [
    ("NEURON_RT_VISIBLE_CORES", ""),
    ("NEURON_RT_VISIBLE_CORES", "abc"),
    ("NEURON_RT_VISIBLE_CORES", "3-1"),
    ("NEURON_RT_VISIBLE_CORES", "0,2"),
    ("NEURON_RT_VISIBLE_CORES", "0-7"),
    ("NEURON_RT_VISIBLE_CORES", "-1"),
    ("NEURON_RT_NUM_CORES", "99"),
    ("NEURON_RT_NUM_CORES", "two"),
    ("NEURON_RT_NUM_CORES", ""),
    ("NEURON_LOGICAL_NC_CONFIG", "3"),
    ("SOFTNEURON_INSTANCE_TYPE", "p5.48xlarge"),
    ("SOFTNEURON_HBM_BYTES", "lots"),
]
# Set by users of the real stack.
ACCEPTED = [
    "TORCH_NEURONX_NEFF_CACHE_DIR",
    "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR",
    "TORCH_NEURONX_ENABLE_ASYNC_NRT",
    "TORCH_NEURONX_ENABLE_STABLEHLO",
    "TORCH_NEURONX_MLIR_ATEN_OPS",
    "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
    "NEURON_EAGER_MODEL_CACHE_SIZE",
    "NEURON_FRAMEWORK_DEBUG",
]
CASES = [env for env, _ in GOOD_VALUES] + [{name: value} for name, value in BAD_VALUES] + [{name: "1"} for name in ACCEPTED]

# Imports torch once; every case is a fork of that process, since the environment is read when the device is asked for, not on import.
REPORT_ALL = """
import json, os, torch, warnings

def report():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = [torch.neuron.is_available(), torch.neuron.device_count(), torch.neuron.is_available()]
        torch.manual_seed(0)
        cpu = (torch.ones(2) + 1).tolist()
        try:
            device = torch.ones(2, device="neuron").tolist()
        except RuntimeError as error:
            device = str(error)
    return {{"answers": answers, "warnings": [str(w.message) for w in caught], "cpu": cpu, "device": device}}

for env in json.loads({cases!r}):
    end, start = os.pipe()
    if os.fork() == 0:
        os.environ.update(env)
        os.write(start, json.dumps(report()).encode())
        os._exit(0)
    os.close(start)
    with open(end) as reader:
        print(reader.read())
    os.wait()
"""


@pytest.fixture(scope="module")
def reports(run_python) -> dict[str, dict[str, Any]]:
    lines = run_python(REPORT_ALL.format(cases=json.dumps(CASES))).stdout.splitlines()
    return {str(env): json.loads(line) for env, line in zip(CASES, lines, strict=True)}


def test_documented_one_liner(run_python):
    result = run_python("import torch; print(torch.neuron.is_available(), torch.neuron.device_count())")
    assert result.stdout == "True 4\n"
    assert result.stderr == ""


@pytest.mark.parametrize(("env", "cores"), GOOD_VALUES, ids=str)
def test_good_values(reports, env, cores):
    report = reports[str(env)]
    assert report["answers"] == [True, cores, True]
    assert report["warnings"] == []
    assert report["device"] == [1, 1]


@pytest.mark.parametrize("name", ACCEPTED)
def test_variables_of_the_real_stack_are_accepted_silently(reports, name):
    assert reports[str({name: "1"})] == {"answers": [True, 4, True], "warnings": [], "cpu": [2, 2], "device": [1, 1]}


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_bad_values(reports, name, value):
    report = reports[str({name: value})]
    assert report["answers"] == [False, 0, False]
    (warning,) = report["warnings"]
    assert name in warning
    assert value in warning
    assert report["cpu"] == [2, 2]
    assert name in report["device"], "use of the device names the variable"


def test_bad_value_before_import(run_python):
    result = run_python(
        "import torch; torch.manual_seed(0); print((torch.ones(2) + 1).tolist(), torch.neuron.is_available(), torch.neuron.device_count())",
        env={"NEURON_RT_VISIBLE_CORES": "x"},
    )
    assert result.stdout == "[2.0, 2.0] False 0\n"
    assert result.stderr.count("RuntimeWarning") == 1
    assert "NEURON_RT_VISIBLE_CORES" in result.stderr


def test_indices_restart_at_zero(run_python):
    output = run_python(
        """
        import torch
        print(torch.ones(1, device="neuron").device, [torch.neuron.get_device_properties(i).core_id for i in range(2)])
        """,
        env={"NEURON_RT_VISIBLE_CORES": "2-3"},
    ).stdout
    assert output == "neuron:0 [2, 3]\n"


def test_variable_set_after_import_counts(run_python):
    output = run_python('import os, torch; os.environ["NEURON_RT_NUM_CORES"] = "2"; print(torch.neuron.device_count())').stdout
    assert output == "2\n"
