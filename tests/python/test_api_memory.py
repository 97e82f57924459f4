"""Memory figures: exact where the allocator's rules are documented, consistent everywhere."""

import gc
import pickle

import pytest
import torch

MIB = 2**20


@pytest.fixture(autouse=True)
def quiet_core():
    """Use core 3, which no other test keeps tensors on, with an empty cache and fresh statistics."""
    gc.collect()
    torch.neuron.set_device(3)
    torch.neuron.init()
    torch.neuron.empty_cache()
    torch.neuron.reset_peak_memory_stats()
    torch.neuron.reset_accumulated_memory_stats()


def allocate(size):
    return torch.empty(size, dtype=torch.uint8, device="neuron")


def test_allocated_follows_tensors():
    before = torch.neuron.memory_allocated()
    tensor = allocate(4 * MIB)
    assert torch.neuron.memory_allocated() - before == 4 * MIB
    assert torch.neuron.max_memory_allocated() == before + 4 * MIB
    assert torch.neuron.memory_reserved() >= torch.neuron.memory_allocated()
    del tensor
    assert torch.neuron.memory_allocated() == before
    assert torch.neuron.max_memory_allocated() == before + 4 * MIB


def test_reset_peak():
    del_me = allocate(8 * MIB)
    del del_me
    assert torch.neuron.max_memory_allocated() > torch.neuron.memory_allocated()
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()
    del_me = allocate(8 * MIB)
    del del_me
    torch.neuron.reset_max_memory_allocated()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()


def test_empty_cache_gives_segments_back():
    tensor = allocate(64 * MIB)
    reserved = torch.neuron.memory_reserved()
    assert reserved >= 64 * MIB
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() == reserved
    del tensor
    assert torch.neuron.memory_reserved() == reserved
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() <= reserved - 64 * MIB
    assert torch.neuron.max_memory_reserved() == reserved


def test_stats_have_documented_and_flat_keys():
    tensor = allocate(3 * MIB)
    stats = torch.neuron.memory_stats()
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        assert set(stats[name]) == {"current", "peak"}
        assert stats[name]["current"] == stats[f"{name}.all.current"]
        assert stats[name]["peak"] == stats[f"{name}.all.peak"]
        assert stats[f"{name}.all.current"] == stats[f"{name}.small_pool.current"] + stats[f"{name}.large_pool.current"]
    assert stats["reserved_bytes"]["current"] >= stats["allocated_bytes"]["current"] >= stats["active_bytes"]["current"] >= 3 * MIB
    for name in ("num_alloc_retries", "num_ooms", "num_tensor_frees", "allocation_requests"):
        assert isinstance(stats[name], int)
    del tensor
    after = torch.neuron.memory_stats()
    assert after["num_tensor_frees"] == stats["num_tensor_frees"] + 1
    assert after["allocated_bytes.all.freed"] == stats["allocated_bytes.all.freed"] + 3 * MIB


def test_pools_split_at_one_mebibyte():
    small, large = allocate(MIB - 1), allocate(MIB)
    stats = torch.neuron.memory_stats()
    assert stats["allocation.small_pool.current"] == 1
    assert stats["allocation.large_pool.current"] == 1
    del small, large


def test_accelerator_sees_the_same_figures():
    tensor = allocate(5 * MIB)
    assert torch.accelerator.memory_allocated() == torch.neuron.memory_allocated()
    assert torch.accelerator.memory_reserved() == torch.neuron.memory_reserved()
    ours = torch.neuron.memory_stats()
    for key, value in torch.accelerator.memory_stats().items():
        if key in ours:
            assert ours[key] == value, key
    assert torch.accelerator.get_memory_info() == torch.neuron.mem_get_info()
    del tensor


def test_accumulated_reset():
    del_me = allocate(MIB)
    del del_me
    assert torch.neuron.memory_stats()["allocated_bytes.all.allocated"] >= MIB
    torch.neuron.reset_accumulated_memory_stats()
    stats = torch.neuron.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == 0
    assert stats["num_tensor_frees"] == 0
    assert stats["allocation_requests"] == 0


def test_figures_are_per_core():
    before = torch.neuron.memory_allocated(2)
    tensor = allocate(2 * MIB)
    assert torch.neuron.memory_allocated(2) == before
    assert torch.neuron.memory_allocated("neuron:3") == torch.neuron.memory_allocated()
    del tensor


def test_mem_get_info():
    total = torch.neuron.get_device_properties().total_memory
    assert torch.neuron.mem_get_info() == (total - torch.neuron.memory_reserved(), total)
    before = torch.neuron.memory_reserved()
    tensor = allocate(256 * MIB)
    assert torch.neuron.memory_reserved() - before >= 256 * MIB
    assert torch.neuron.mem_get_info() == (total - torch.neuron.memory_reserved(), total)
    del tensor


def test_snapshot_is_complete_and_picklable():
    tensor = allocate(2 * MIB)
    segments = torch.neuron.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == torch.neuron.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == torch.neuron.memory_allocated()
    for segment in segments:
        # Large segments start with a gap, so that their blocks are not all aligned alike: entries fill the segment all the same.
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
        assert segment["segment_type"] in ("small", "large")
        assert segment["device"] == 3
    owners = [b for segment in segments for b in segment["blocks"] if b["address"] == tensor.data_ptr()]
    assert [(b["state"], b["requested_size"]) for b in owners] == [("active_allocated", 2 * MIB)]
    picture = pickle.loads(pickle.dumps(torch.neuron.memory.snapshot()))
    assert len(picture["device_traces"]) == torch.neuron.device_count()
    assert [segment for segment in picture["segments"] if segment["device"] == 3] == segments


def test_fragmentation_grows_with_holes():
    tensors = [allocate(2 * MIB) for _ in range(8)]
    del tensors[::2]
    figures = torch.neuron.memory.fragmentation()
    assert 0 < figures["ratio"] < 1
    assert figures["ratio"] == pytest.approx(1 - figures["largest_free_block"] / figures["free_bytes"])


def test_summary():
    text = torch.neuron.memory_summary()
    assert "Neuron Memory Summary" in text
    assert "Device" in text
    assert "neuron:3" in text
    assert "small pool" in text
    short = torch.neuron.memory_summary(device=2, abbreviated=True)
    assert "neuron:2" in short
    assert "small pool" not in short


def test_out_of_memory_is_counted_and_recoverable(run_python):
    run_python(
        """
        import torch
        keep = torch.empty(40 * 2**20, dtype=torch.uint8, device="neuron")
        try:
            torch.empty(2**30, dtype=torch.uint8, device="neuron")
        except torch.OutOfMemoryError as error:
            assert " out of memory." in str(error) and "Neuron OOM" in str(error), error
        else:
            raise AssertionError("more than the HBM was allocated")
        assert torch.neuron.memory_stats()["num_ooms"] == 1
        del keep
        assert torch.empty(50 * 2**20, dtype=torch.uint8, device="neuron").is_neuron
        """,
        env={"SOFTNEURON_HBM_BYTES": "64M"},
    )
