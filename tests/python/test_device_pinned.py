"""Pinned host memory: `pin_memory()`, `is_pinned()`, factories with `pin_memory=True`, the DataLoader, and the cache behind them."""

import gc

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

PAGE = 4096


def test_pin_memory_copies_and_is_recognised() -> None:
    plain = torch.arange(1000.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned()
    assert not plain.is_pinned()
    assert pinned.device == torch.device("cpu")
    assert pinned.data_ptr() % PAGE == 0
    assert torch.equal(pinned, plain)


def test_pinning_pinned_memory_is_free() -> None:
    pinned = torch.ones(5).pin_memory()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()


def test_views_of_pinned_memory_are_pinned() -> None:
    pinned = torch.arange(5000).pin_memory()
    assert pinned[100:].is_pinned()
    assert pinned.view(50, 100).t().is_pinned()
    assert pinned.untyped_storage().is_pinned()


def test_memory_next_to_a_pinned_block_is_not_pinned() -> None:
    pinned = [torch.empty(PAGE, dtype=torch.uint8).pin_memory() for _ in range(8)]
    assert not any(torch.empty(PAGE, dtype=torch.uint8).is_pinned() for _ in range(100))
    del pinned


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (7, 9)])
def test_factories(shape: tuple[int, ...]) -> None:
    tensor = torch.zeros(shape, pin_memory=True)
    assert tensor.shape == shape
    if tensor.numel():
        assert tensor.is_pinned()
    assert torch.empty_like(tensor, pin_memory=True).shape == shape


def test_storage_pin_memory() -> None:
    storage = torch.arange(10, dtype=torch.uint8).untyped_storage().pin_memory()
    assert storage.is_pinned()
    assert storage.tolist() == list(range(10))


def test_device_tensors_cannot_be_pinned() -> None:
    with pytest.raises(RuntimeError, match=r"(?i)dense cpu tensors can be pinned"):
        torch.ones(3, device="neuron").pin_memory()
    with pytest.raises(RuntimeError, match=r"(?i)dense cpu tensors can be pinned"):
        torch.empty(3, device="neuron", pin_memory=True)
    assert not torch.ones(3, device="neuron").is_pinned()


def test_freed_blocks_are_reused_and_released() -> None:
    first = torch.empty(1 << 16, dtype=torch.uint8, pin_memory=True)
    address = first.data_ptr()
    del first
    gc.collect()
    second = torch.empty((1 << 16) - 5, dtype=torch.uint8, pin_memory=True)
    assert second.data_ptr() == address
    del second
    torch.accelerator.memory.empty_host_cache()
    assert torch.empty(1 << 16, dtype=torch.uint8, pin_memory=True).is_pinned()


@pytest.mark.parametrize("non_blocking", [False, True])
def test_copies_to_and_from_the_device(non_blocking: bool) -> None:
    pinned = torch.randn(100, 33).pin_memory()
    on_device = pinned.to("neuron:1", non_blocking=non_blocking)
    back = torch.empty(100, 33, pin_memory=True)
    back.copy_(on_device, non_blocking=non_blocking)
    torch.accelerator.synchronize("neuron:1")
    assert torch.equal(back, pinned)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(workers: int) -> None:
    dataset = TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))
    loader = DataLoader(dataset, batch_size=4, pin_memory=True, num_workers=workers)
    seen = []
    for features, labels in loader:
        assert features.is_pinned()
        assert labels.is_pinned()
        seen += labels.to("neuron", non_blocking=True).tolist()
    assert seen == list(range(20))


def test_data_loader_pins_for_the_selected_core() -> None:
    with torch.accelerator.device_index(3):
        loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2, pin_memory=True, num_workers=1)
        assert all(batch[0].is_pinned() for batch in loader)
        assert torch.accelerator.current_device_index() == 3
