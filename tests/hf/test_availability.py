"""Hugging Face libraries find the device by themselves, in a process that imported only torch."""

from __future__ import annotations

import pytest
import torch
from accelerate.state import PartialState
from accelerate.utils import is_neuron_available
from transformers.utils import is_torch_bf16_gpu_available, is_torch_neuron_available
from transformers.utils.import_utils import (
    is_torch_bf16_available_on_device,
    is_torch_fp16_available_on_device,
    is_torch_neuroncore_available,
    is_torch_xla_available,
)

from .helpers import run_json, run_python

# Variables that change the number of cores.
TOPOLOGY_VARIABLES = (
    "NEURON_RT_VISIBLE_CORES",
    "NEURON_RT_NUM_CORES",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_RT_VIRTUAL_CORE_SIZE",
    "SOFTNEURON_INSTANCE_TYPE",
)


@pytest.fixture
def default_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose topology nobody changed: subprocesses inherit this environment."""
    for name in TOPOLOGY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.neuron_only
@pytest.mark.usefixtures("default_topology")
def test_snippet_prints_true_and_four() -> None:
    result = run_python("import torch\nprint(torch.neuron.is_available(), torch.neuron.device_count())")
    assert result.stdout.strip() == "True 4"
    assert result.stderr == "", "importing torch must not warn"


@pytest.mark.neuron_only
def test_asking_does_not_start_the_runtime() -> None:
    """accelerate and transformers ask in launchers and before a fork: the answer must not claim the device."""
    script = """
    import json, torch
    from transformers.utils import is_torch_neuron_available
    answers = [torch.neuron.is_available(), torch.neuron.device_count()]
    answers += [is_torch_neuron_available(check_device=True), torch.neuron.is_bf16_supported()]
    print(json.dumps([answers, torch.neuron.is_initialized()]))
    """
    answers, initialized = run_json(script)
    assert answers[0] is True and answers[2] is True and answers[3] is True
    assert initialized is False


@pytest.mark.neuron_only
def test_fork_after_asking_can_use_the_device() -> None:
    script = """
    import os, torch
    assert torch.neuron.is_available() and torch.neuron.device_count() >= 1
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.ones(2, device="neuron").sum().item() == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    run_python(script)


@pytest.mark.neuron_only
def test_libraries_agree() -> None:
    assert is_torch_neuron_available() is True
    assert is_torch_neuron_available(check_device=True) is True
    assert is_neuron_available() is True
    assert is_neuron_available(check_device=True) is True
    assert PartialState().default_device == torch.device("neuron")
    assert torch.accelerator.current_accelerator() is not None
    assert torch.accelerator.current_accelerator().type == "neuron"


@pytest.mark.neuron_only
def test_no_xla_is_pretended() -> None:
    """transformers would start an XLA process group under torchrun if it believed in the older, XLA-based package."""
    assert not is_torch_xla_available()
    assert not is_torch_neuroncore_available()


@pytest.mark.neuron_only
def test_bfloat16_is_native() -> None:
    assert is_torch_bf16_gpu_available() is True
    assert torch.bfloat16 in torch.neuron.get_amp_supported_dtype()


def test_half_precisions_run(device: str) -> None:
    assert is_torch_bf16_available_on_device(device)
    assert is_torch_fp16_available_on_device(device)


@pytest.mark.neuron_only
def test_switched_off_by_torch() -> None:
    """`TORCH_DEVICE_BACKEND_AUTOLOAD=0` is PyTorch's own switch: everything falls back to the CPU."""
    script = """
    import json, torch
    from transformers.utils import is_torch_neuron_available
    print(json.dumps([hasattr(torch, "neuron"), is_torch_neuron_available()]))
    """
    assert run_json(script, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}) == [False, False]
