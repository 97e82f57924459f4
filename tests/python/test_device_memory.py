"""Device memory through torch: accounting, resizing, cloning, copy-on-write, out of memory, and CPU kernels allocating device memory."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch.accelerator import memory

MIB = 1 << 20
DEVICE = torch.device("neuron:2")  # not the current device: nothing may be charged to the wrong core


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    gc.collect()
    memory.empty_cache()
    yield
    gc.collect()


def allocated(device: torch.device = DEVICE) -> int:
    return memory.memory_allocated(device)


class TestStatistics:
    def test_allocation_is_charged_and_returned(self) -> None:
        before = allocated()
        tensor = torch.empty(10 * MIB, dtype=torch.uint8, device=DEVICE)
        assert allocated() == before + 10 * MIB
        del tensor
        assert allocated() == before

    def test_only_its_own_core_is_charged(self) -> None:
        others = [torch.device("neuron", core) for core in (0, 1, 3)]
        before = [allocated(other) for other in others]
        tensor = torch.zeros(MIB, device=DEVICE) + 1
        assert allocated() >= 4 * MIB
        assert [allocated(other) for other in others] == before
        del tensor

    def test_view_is_free(self) -> None:
        tensor = torch.empty(1024, 1024, device=DEVICE)
        before = allocated()
        views = [tensor.t(), tensor[10:], tensor.reshape(-1), tensor.detach(), tensor.expand(3, 1024, 1024)]
        assert allocated() == before
        assert len({view.untyped_storage().data_ptr() for view in views}) == 1

    def test_memory_lives_as_long_as_a_view(self) -> None:
        before = allocated()
        view = torch.empty(MIB, device=DEVICE)[5:6]
        assert allocated() == before + 4 * MIB
        del view
        assert allocated() == before

    def test_empty_tensor_costs_nothing(self) -> None:
        before = allocated()
        tensor = torch.empty(0, 5, device=DEVICE)
        assert tensor.data_ptr() == 0
        assert tensor.untyped_storage().device == DEVICE
        assert allocated() == before

    def test_peak(self) -> None:
        memory.reset_peak_memory_stats(DEVICE)
        before = allocated()
        tensor = torch.empty(8 * MIB, dtype=torch.uint8, device=DEVICE)
        del tensor
        assert memory.max_memory_allocated(DEVICE) == before + 8 * MIB
        assert allocated() == before
        memory.reset_peak_memory_stats(DEVICE)
        assert memory.max_memory_allocated(DEVICE) == before

    def test_all_statistics_of_one_large_and_one_small_tensor(self) -> None:
        memory.reset_accumulated_memory_stats(DEVICE)
        before = memory.memory_stats(DEVICE)
        large = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)
        small = torch.empty(1000, dtype=torch.uint8, device=DEVICE)
        stats = memory.memory_stats(DEVICE)

        def grew(name: str) -> int:
            return stats[f"{name}.current"] - before[f"{name}.current"]

        assert grew("requested_bytes.all") == 3 * MIB + 1000
        assert grew("requested_bytes.large_pool") == 3 * MIB
        assert grew("requested_bytes.small_pool") == 1000
        assert grew("allocated_bytes.small_pool") == 1024
        assert grew("allocation.all") == grew("active.all") == 2
        assert grew("allocation.large_pool") == grew("allocation.small_pool") == 1
        assert grew("allocated_bytes.all") == grew("active_bytes.all")
        assert stats["allocation.all.allocated"] == 2
        assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"]
        assert stats["segment.all.current"] >= 2
        del large, small
        after = memory.memory_stats(DEVICE)
        assert after["allocation.all.freed"] == 2
        assert after["allocation.all.current"] == before["allocation.all.current"]

    def test_empty_cache_returns_segments(self) -> None:
        tensor = torch.empty(64 * MIB, dtype=torch.uint8, device=DEVICE)
        reserved = memory.memory_reserved(DEVICE)
        del tensor
        assert memory.memory_reserved(DEVICE) == reserved
        memory.empty_cache()
        assert memory.memory_reserved(DEVICE) <= reserved - 64 * MIB

    def test_memory_info(self) -> None:
        free, total = memory.get_memory_info(DEVICE)
        assert total == 24 << 30
        assert free == total - memory.memory_reserved(DEVICE)

    def test_cached_memory_is_reused(self) -> None:
        address = torch.empty(5 * MIB, dtype=torch.uint8, device=DEVICE).data_ptr()
        assert torch.empty(5 * MIB, dtype=torch.uint8, device=DEVICE).data_ptr() == address

    def test_missing_device(self) -> None:
        with pytest.raises(ValueError, match="neuron:8"):
            memory.memory_allocated(8)

    def test_concurrent_allocation_balances(self) -> None:
        before = allocated()

        def work() -> None:
            kept = []
            for step in range(300):
                kept.append(torch.empty(1 + step * 97, device=DEVICE))
                if step % 3 == 0:
                    kept.pop(0)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        assert allocated() == before


class TestOutOfMemory:
    def test_beyond_the_core(self) -> None:
        before = allocated()
        with pytest.raises(torch.OutOfMemoryError, match=r" out of memory\."):
            torch.empty(25 << 30, dtype=torch.uint8, device=DEVICE)
        assert allocated() == before
        assert memory.memory_stats(DEVICE)["num_ooms"] >= 1

    def test_retry_works_after_freeing(self) -> None:
        # Untouched pages cost the host nothing.
        hog = torch.empty(20 << 30, dtype=torch.uint8, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError, match="neuron:2"):
            torch.empty(10 << 30, dtype=torch.uint8, device=DEVICE)
        del hog
        assert torch.empty(10 << 30, dtype=torch.uint8, device=DEVICE).numel() == 10 << 30

    def test_result_of_an_operator_counts(self) -> None:
        hog = torch.empty(23 << 30, dtype=torch.uint8, device=DEVICE)
        row = torch.ones(1, dtype=torch.uint8, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError):
            row.repeat(2 << 30)
        assert (row + 1).item() == 2
        del hog

    def test_absurd_size(self) -> None:
        with pytest.raises(RuntimeError):
            torch.empty(1 << 62, dtype=torch.uint8, device=DEVICE)


class TestResize:
    def test_storage_resize_to_zero_frees_and_back_allocates(self) -> None:
        # What FSDP2 does to its unsharded parameters.
        tensor = torch.ones(MIB, device=DEVICE)
        storage = tensor.untyped_storage()
        before = allocated()
        storage.resize_(0)
        assert allocated() == before - 4 * MIB
        assert storage.size() == 0
        assert storage.device == DEVICE
        storage.resize_(4 * MIB)
        assert allocated() == before
        tensor.fill_(7)
        assert tensor.sum().item() == 7 * MIB

    def test_storage_growing_keeps_bytes(self) -> None:
        storage = torch.arange(100, dtype=torch.uint8, device=DEVICE).untyped_storage()
        storage.resize_(10_000)
        assert storage.device == DEVICE
        assert storage.cpu().tolist()[:100] == list(range(100))

    def test_storage_shrinking_keeps_the_front(self) -> None:
        storage = torch.arange(100, dtype=torch.uint8, device=DEVICE).untyped_storage()
        storage.resize_(10)
        assert storage.cpu().tolist() == list(range(10))

    def test_resize_on_a_core_that_is_not_current(self) -> None:
        other = torch.device("neuron:3")
        tensor = torch.ones(4, device=other)
        with torch.accelerator.device_index(1):
            before = allocated(torch.device("neuron:1"))
            tensor.resize_(4096)
            tensor.untyped_storage().resize_(1 << 16)
            assert allocated(torch.device("neuron:1")) == before
        assert tensor.untyped_storage().device == other
        assert tensor[:4].tolist() == [1, 1, 1, 1]

    def test_tensor_resize(self) -> None:
        tensor = torch.arange(6, device=DEVICE)
        tensor.resize_(2, 5)
        assert tensor.shape == (2, 5)
        assert tensor.view(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
        tensor.resize_(0)
        assert tensor.numel() == 0

    def test_resize_failure_leaves_the_storage(self) -> None:
        tensor = torch.arange(4, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError):
            tensor.untyped_storage().resize_(30 << 30)
        assert tensor.tolist() == [0, 1, 2, 3]

    def test_out_that_grows_ends_in_device_memory(self) -> None:
        out = torch.empty(0, device=DEVICE)
        before = allocated()
        torch.add(torch.ones(MIB, device=DEVICE), 1, out=out)
        gc.collect()
        assert out.device == DEVICE
        assert out.untyped_storage().device == DEVICE
        assert allocated() - before == 4 * MIB
        assert out.sum().item() == 2 * MIB


class TestCloning:
    def test_clone_is_charged_and_independent(self) -> None:
        source = torch.arange(5, device=DEVICE)
        copy = source.clone()
        copy += 1
        assert source.tolist() == [0, 1, 2, 3, 4]
        assert copy.untyped_storage().device == DEVICE

    def test_storage_clone(self) -> None:
        storage = torch.arange(5, dtype=torch.uint8, device=DEVICE).untyped_storage()
        copy = storage.clone()
        copy.fill_(9)
        assert copy.device == DEVICE
        assert storage.cpu().tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("writer", ["original", "copy"])
    def test_lazy_clone(self, writer: str) -> None:
        original = torch.arange(MIB, device=DEVICE)
        before = allocated()
        copy = torch._lazy_clone(original)
        assert allocated() == before  # shared until one of them is written to
        (original if writer == "original" else copy).add_(1)
        assert allocated() == before + 8 * MIB
        first, second = (1, 0) if writer == "original" else (0, 1)
        assert original[0].item() == first
        assert copy[0].item() == second

    def test_lazy_clone_survives_its_original(self) -> None:
        original = torch.arange(8, device=DEVICE)
        before = allocated()
        copy = torch._lazy_clone(original)
        del original
        copy.mul_(2)
        assert copy.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
        assert allocated() == before


class TestCpuKernelsOnDeviceMemory:
    """CPU kernels run on aliases of device tensors; what they allocate must be device memory, what everybody else allocates must not."""

    def test_results_and_temporaries_are_charged_and_returned(self) -> None:
        matrix = torch.randn(256, 256, device=DEVICE)
        before = allocated()
        result = torch.linalg.svd(matrix)
        assert allocated() > before
        del result
        gc.collect()
        assert allocated() == before

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_onednn_scratch_memory(self, dtype: torch.dtype) -> None:
        # oneDNN takes memory through the raw interface and may free it in a later call.
        before = allocated()
        image = torch.randn(2, 8, 32, 32, dtype=dtype, device=DEVICE)
        layer = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1).to(DEVICE, dtype)
        for _ in range(3):
            got = layer(image)
        with torch.no_grad():
            expected = layer.cpu()(image.cpu())
        torch.testing.assert_close(got.cpu(), expected)
        del got, image, layer
        gc.collect()
        assert allocated() - before <= MIB

    def test_host_tensors_of_the_same_thread_are_host_memory(self) -> None:
        device_tensor = torch.ones(MIB, device=DEVICE)
        (device_tensor * 2).sum()
        before = allocated()
        host = torch.ones(MIB) * 3
        assert allocated() == before
        assert host.device.type == "cpu"
        back = device_tensor.cpu()
        assert allocated() == before
        assert back.untyped_storage().device == torch.device("cpu")

    def test_host_tensor_made_before_and_after_first_use_can_grow(self) -> None:
        host = torch.arange(4)
        torch.ones(1, device=DEVICE)
        host.resize_(1000)
        host.untyped_storage().resize_(1 << 16)
        assert host[:4].tolist() == [0, 1, 2, 3]

    def test_other_threads_are_not_affected(self) -> None:
        stop = threading.Event()

        def keep_device_busy() -> None:
            matrix = torch.randn(64, 64, device=DEVICE)
            while not stop.is_set():
                (matrix @ matrix).relu()

        thread = threading.Thread(target=keep_device_busy)
        thread.start()
        try:
            tensors = [torch.ones(1000) for _ in range(2000)]
            assert all(tensor.untyped_storage().device.type == "cpu" for tensor in tensors)
        finally:
            stop.set()
            thread.join()

    def test_exception_inside_an_operator_closes_the_scope(self) -> None:
        with pytest.raises(RuntimeError):
            torch.linalg.cholesky(-torch.eye(3, device=DEVICE))
        before = allocated()
        torch.empty(MIB)
        assert allocated() == before


class TestLifetime:
    def test_resident_memory_stays_flat(self) -> None:
        psutil = pytest.importorskip("psutil")
        process = psutil.Process()

        def use(rounds: int) -> None:
            for _ in range(rounds):
                stream = torch.Stream(DEVICE)
                stream.record_event().synchronize()
                tensor = torch.empty(3000, device=DEVICE)
                tensor.record_stream(stream)
                tensor.untyped_storage().resize_(100_000)
                tensor.cpu().pin_memory().to(DEVICE)

        use(300)
        before = process.memory_info().rss
        use(3000)
        assert process.memory_info().rss - before < 4 * MIB

    def test_weak_reference_and_cycle(self) -> None:
        before = allocated()
        tensor = torch.empty(MIB, device=DEVICE)
        reference = weakref.ref(tensor)
        tensor.cycle = [tensor]  # type: ignore[attr-defined]
        del tensor
        gc.collect()
        assert reference() is None
        assert allocated() == before

    def test_freed_by_another_thread(self) -> None:
        before = allocated()
        holder = [torch.empty(MIB, device=DEVICE)]
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        assert allocated() == before

    def test_profiler_sees_device_memory(self) -> None:
        with torch.profiler.profile(profile_memory=True) as profiler:
            tensor = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)
            del tensor
        sizes = [event.device_memory_usage for event in profiler.events() if event.device_memory_usage]
        assert sizes == [3 * MIB, -3 * MIB]
