"""Environment variables that describe the device, good and bad, each in a process of its own."""

import pytest

REPORT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    print(torch.neuron.is_available(), torch.neuron.device_count(), torch.neuron.is_available())
for warning in caught:
    print("WARNING", warning.message)
"""


def test_documented_one_liner(run_python):
    result = run_python("import torch; print(torch.neuron.is_available(), torch.neuron.device_count())")
    assert result.stdout == "True 4\n"
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("env", "cores"),
    [
        ({"NEURON_RT_VISIBLE_CORES": "2"}, 1),
        ({"NEURON_RT_VISIBLE_CORES": "1-3"}, 3),
        ({"NEURON_RT_VISIBLE_CORES": "0,1"}, 2),
        ({"NEURON_RT_NUM_CORES": "3"}, 3),
        ({"NEURON_RT_VISIBLE_CORES": "0", "NEURON_RT_NUM_CORES": "3"}, 1),
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
        ({"NEURON_RT_VIRTUAL_CORE_SIZE": "1"}, 8),
        ({"SOFTNEURON_INSTANCE_TYPE": "trn2.48xlarge"}, 64),
        ({"SOFTNEURON_INSTANCE_TYPE": "trn1.2xlarge"}, 2),
    ],
)
def test_good_values(run_python, env, cores):
    assert run_python(REPORT, env=env).stdout == f"True {cores} True\n"


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


@pytest.mark.parametrize(
    "env",
    [
        {"NEURON_RT_VISIBLE_CORES": ""},
        {"NEURON_RT_VISIBLE_CORES": "abc"},
        {"NEURON_RT_VISIBLE_CORES": "3-1"},
        {"NEURON_RT_VISIBLE_CORES": "0,2"},
        {"NEURON_RT_VISIBLE_CORES": "0-7"},
        {"NEURON_RT_VISIBLE_CORES": "-1"},
        {"NEURON_RT_NUM_CORES": "99"},
        {"NEURON_RT_NUM_CORES": "two"},
        {"NEURON_RT_NUM_CORES": ""},
        {"NEURON_LOGICAL_NC_CONFIG": "3"},
        {"SOFTNEURON_INSTANCE_TYPE": "p5.48xlarge"},
        {"SOFTNEURON_HBM_BYTES": "lots"},
    ],
    ids=lambda env: "=".join(*env.items()),
)
def test_bad_values(run_python, env):
    (name,) = env
    lines = run_python(REPORT, env=env).stdout.splitlines()
    assert lines[0] == "False 0 False"
    assert len(lines) == 2, "exactly one warning"
    assert lines[1].startswith("WARNING")
    assert name in lines[1]
    assert repr(env[name])[1:-1] in lines[1]


def test_bad_values_do_not_disturb_cpu_work(run_python):
    result = run_python(
        """
        import torch
        torch.manual_seed(0)
        print((torch.ones(2) + 1).tolist())
        try:
            torch.ones(1, device="neuron")
        except RuntimeError as error:
            assert "NEURON_RT_VISIBLE_CORES" in str(error), error
            print("refused")
        """,
        env={"NEURON_RT_VISIBLE_CORES": "x"},
    )
    assert result.stdout == "[2.0, 2.0]\nrefused\n"
    assert result.stderr == ""


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_NEURONX_NEFF_CACHE_DIR",
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR",
        "TORCH_NEURONX_ENABLE_ASYNC_NRT",
        "TORCH_NEURONX_ENABLE_STABLEHLO",
        "TORCH_NEURONX_MLIR_ATEN_OPS",
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
        "NEURON_EAGER_MODEL_CACHE_SIZE",
        "NEURON_FRAMEWORK_DEBUG",
    ],
)
def test_variables_of_the_real_stack_are_accepted_silently(run_python, name):
    result = run_python("import torch; print(torch.ones(2, device='neuron').sum().item())", env={name: "1"})
    assert result.stdout == "2.0\n"
    assert result.stderr == ""
