"""Every documented name exists, is described, and the names PyTorch generates work."""

import inspect

import pytest
import torch

import torch_neuronx

DEVICE_MODULE_NAMES = """
is_available is_initialized init device_count current_device set_device device device_of get_device_name get_device_properties
get_device_capability can_device_access_peer synchronize Stream StreamContext stream current_stream default_stream set_stream Event
wait_stream wait_event record_event query manual_seed manual_seed_all seed seed_all initial_seed get_rng_state set_rng_state
get_rng_state_all set_rng_state_all get_amp_supported_dtype is_bf16_supported memory_allocated max_memory_allocated memory_reserved
max_memory_reserved memory_stats memory_summary memory_snapshot mem_get_info reset_peak_memory_stats reset_accumulated_memory_stats
reset_max_memory_allocated empty_cache get_dynamo_metrics reset_dynamo_metrics _is_in_bad_fork _sleep _lazy_init _exchange_device
_maybe_exchange_device
""".split()

PACKAGE_NAMES = """
device_count current_device set_device device get_device_properties synchronize current_stream default_stream set_stream stream
StreamContext Stream Event empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats
memory_summary reset_peak_memory_stats reset_accumulated_memory_stats get_fallback_ops get_executed_ops clear_op_tracking
get_dynamo_metrics reset_dynamo_metrics is_neuron_runtime_initialized
""".split()


@pytest.mark.parametrize("name", DEVICE_MODULE_NAMES)
def test_device_module_has_documented_name(name):
    member = getattr(torch.neuron, name)
    assert callable(member)
    assert inspect.getdoc(member)


@pytest.mark.parametrize("name", PACKAGE_NAMES)
def test_package_has_documented_name(name):
    assert inspect.getdoc(getattr(torch_neuronx, name))


def test_package_and_device_module_share_objects():
    assert torch_neuronx.Stream is torch.neuron.Stream
    assert torch_neuronx.memory_stats is torch.neuron.memory_stats
    assert torch_neuronx.neuron is torch.neuron


@pytest.mark.parametrize("module", [torch_neuronx, torch.neuron, torch.neuron.amp])
def test_all_lists_only_existing_names(module):
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("topic", ["memory", "random", "amp"])
def test_submodules_are_not_loaded_twice(topic):
    imported = __import__(f"torch.neuron.{topic}", fromlist=[topic])
    assert imported is getattr(torch.neuron, topic)


def test_unknown_names_raise_attribute_error():
    for module in (torch.neuron, torch.neuron.random):
        with pytest.raises(AttributeError, match="no_such_name"):
            module.no_such_name


def test_pytorch_finds_the_module():
    assert torch.get_device_module("neuron") is torch.neuron
    assert torch.get_device_module(torch.device("neuron", 1)) is torch.neuron
    assert torch.accelerator.current_accelerator().type == "neuron"
    assert torch.accelerator.device_count() == torch.neuron.device_count()
    assert torch.accelerator.is_available()


def test_generated_tensor_and_storage_methods():
    host = torch.arange(6.0)
    assert not host.is_neuron
    moved = host.neuron()
    assert moved.is_neuron
    assert moved.device == torch.device("neuron:0")
    assert torch.equal(moved.cpu(), host)
    assert host.neuron(2).device == torch.device("neuron:2")
    assert host.untyped_storage().neuron().is_neuron


def test_generated_module_and_packed_sequence_methods():
    layer = torch.nn.Linear(3, 2).neuron(1)
    assert {parameter.device for parameter in layer.parameters()} == {torch.device("neuron:1")}
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert not packed.is_neuron
    assert packed.neuron().is_neuron
