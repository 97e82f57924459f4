"""Operator tracking as users of the device check it."""

import torch

import torch_neuronx


def test_executed_ops_since_clear():
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_executed_ops() == []
    left = torch.ones(4, 4, device="neuron")
    (left @ left).relu()
    executed = torch_neuronx.get_executed_ops()
    assert {"aten::mm", "aten::relu"} <= set(executed)
    assert executed == sorted(set(executed))
    assert all(name.startswith("aten::") and "." not in name for name in executed)
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_executed_ops() == []


def test_cpu_work_is_not_counted():
    torch_neuronx.clear_op_tracking()
    torch.ones(4, 4) @ torch.ones(4, 4)
    assert torch_neuronx.get_executed_ops() == []


def test_fallback_ops_are_what_trainium_runs_on_its_host():
    torch_neuronx.clear_op_tracking()
    values = torch.ones(4, 4, device="neuron")
    values + values
    assert torch_neuronx.get_fallback_ops() == []
    values.normal_()
    assert "aten::normal_" in torch_neuronx.get_fallback_ops()
    assert set(torch_neuronx.get_fallback_ops()) <= set(torch_neuronx.get_executed_ops())


def test_copies_are_counted():
    before = torch_neuronx.telemetry.get_counters()
    torch.ones(1024).neuron().cpu()
    after = torch_neuronx.telemetry.get_counters()
    assert after["host_to_device_bytes"] - before["host_to_device_bytes"] == 4096
    assert after["device_to_host_bytes"] - before["device_to_host_bytes"] == 4096
