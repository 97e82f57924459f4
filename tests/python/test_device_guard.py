"""Devices, streams and events as torch's generic code (`torch.accelerator`, `torch.Stream`, autograd) sees them: the device guard."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

CORES = 4


@pytest.fixture(autouse=True)
def _restore_current_device() -> Iterator[None]:
    previous = torch.accelerator.current_device_index()
    yield
    torch.accelerator.set_device_index(previous)


def in_thread(function: Callable[[], object]) -> object:
    """Run `function` in a new thread and return its result; an exception fails the test."""
    outcome: dict[str, object] = {}

    def run() -> None:
        try:
            outcome["result"] = function()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise AssertionError("the thread failed") from outcome["error"]  # type: ignore[arg-type]
    return outcome["result"]


class TestAccelerator:
    def test_is_the_accelerator(self) -> None:
        assert torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() == torch.device("neuron")
        assert torch.accelerator.device_count() == CORES

    def test_current_device_index(self) -> None:
        torch.accelerator.set_device_index(3)
        assert torch.accelerator.current_device_index() == 3
        assert torch.empty(1, device="neuron").device == torch.device("neuron", 3)
        assert torch.neuron.current_device() == 3

    @pytest.mark.parametrize("index", [CORES, CORES + 3, 100])
    def test_device_out_of_range(self, index: int) -> None:
        torch.accelerator.set_device_index(1)
        with pytest.raises(ValueError, match=f"neuron:{index}"):
            torch.accelerator.set_device_index(index)
        assert torch.accelerator.current_device_index() == 1

    def test_device_index_context(self) -> None:
        torch.accelerator.set_device_index(1)
        with torch.accelerator.device_index(2):
            assert torch.accelerator.current_device_index() == 2
            with torch.accelerator.device_index(None):
                assert torch.accelerator.current_device_index() == 2
        assert torch.accelerator.current_device_index() == 1

    def test_device_index_context_restores_after_exception(self) -> None:
        torch.accelerator.set_device_index(1)
        with pytest.raises(KeyError), torch.accelerator.device_index(2):
            raise KeyError
        assert torch.accelerator.current_device_index() == 1

    def test_device_as_context_manager(self) -> None:
        with torch.device("neuron:2"):
            assert torch.zeros(2).device == torch.device("neuron:2")

    def test_synchronize(self) -> None:
        torch.accelerator.synchronize()
        torch.accelerator.synchronize("neuron:3")
        with pytest.raises(ValueError, match="neuron:9"):
            torch.accelerator.synchronize(9)

    def test_capability_lists_dense_dtypes(self) -> None:
        dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
        assert {torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool, torch.complex64} <= dtypes
        assert not dtypes & {torch.qint8, torch.quint8, torch.qint32}

    def test_operators_do_not_change_the_current_device(self) -> None:
        torch.accelerator.set_device_index(1)
        other = torch.randn(8, 8, device="neuron:3", requires_grad=True)
        (other @ other).sum().backward()
        other.grad.to("neuron:0")  # type: ignore[union-attr]
        assert torch.accelerator.current_device_index() == 1


class TestThreads:
    def test_new_thread_sees_the_selection_of_the_main_thread(self) -> None:
        torch.accelerator.set_device_index(2)
        assert in_thread(torch.accelerator.current_device_index) == 2
        assert in_thread(lambda: torch.ones(1, device="neuron").device.index) == 2

    def test_selection_is_per_thread(self) -> None:
        torch.accelerator.set_device_index(1)

        def select_other() -> int:
            torch.accelerator.set_device_index(3)
            return torch.accelerator.current_device_index()

        assert in_thread(select_other) == 3
        assert torch.accelerator.current_device_index() == 1

    def test_many_threads_create_streams_and_tensors(self) -> None:
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                device = torch.device("neuron", seed % CORES)
                for step in range(20):
                    stream = torch.Stream(device)
                    with stream:
                        value = torch.full((seed + 1,), step, device=device)
                    event = stream.record_event()
                    event.synchronize()
                    assert value.sum().item() == step * (seed + 1)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    def test_autograd_over_all_cores(self) -> None:
        leaf = torch.arange(6.0, requires_grad=True)
        loss = sum(((leaf.to(f"neuron:{core}") * (core + 1)) ** 2).sum().to("neuron:0") for core in range(CORES))
        loss.backward()  # type: ignore[union-attr]
        expected = 2 * leaf.detach() * sum((core + 1) ** 2 for core in range(CORES))
        torch.testing.assert_close(leaf.grad, expected)

    def test_backward_from_many_threads(self) -> None:
        weight = torch.ones(4, 4, device="neuron:1", requires_grad=True)

        def work() -> None:
            for _ in range(10):
                (weight * 2).sum().backward()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.autograd.grad((weight * 3).sum(), weight)[0].cpu().eq(3).all()


class TestStreams:
    def test_current_and_default_stream(self) -> None:
        stream = torch.accelerator.current_stream("neuron:1")
        assert stream.device == torch.device("neuron:1")
        assert stream.stream_id == 0
        assert stream == torch.accelerator.current_stream(1)

    def test_new_stream_belongs_to_its_device(self) -> None:
        torch.accelerator.set_device_index(2)
        assert torch.Stream("neuron").device == torch.device("neuron:2")
        assert torch.Stream("neuron:1", priority=-1).device == torch.device("neuron:1")

    def test_stream_of_a_missing_device(self) -> None:
        with pytest.raises(ValueError, match="neuron:11"):
            torch.Stream("neuron:11")

    def test_stream_context_restores(self) -> None:
        # It switches the device only if it changes the stream, hence never in single-stream mode (the other: test_device_process.py).
        torch.accelerator.set_device_index(1)
        with torch.Stream("neuron:2") as stream:
            assert torch.accelerator.current_stream("neuron:2") == stream
        assert torch.accelerator.current_device_index() == 1

    def test_set_stream(self) -> None:
        stream = torch.Stream("neuron:1")
        torch.accelerator.set_stream(stream)
        assert torch.accelerator.current_stream() == stream
        assert torch.accelerator.current_device_index() == 1

    def test_query_and_synchronize(self) -> None:
        stream = torch.Stream("neuron")
        with stream:
            torch.ones(1000, device="neuron").cumsum(0)
        stream.synchronize()
        assert stream.query()

    def test_waiting_for_another_stream(self) -> None:
        first, second = torch.Stream("neuron"), torch.Stream("neuron")
        event = first.record_event()
        second.wait_event(event)
        second.wait_stream(first)
        assert second.query()

    def test_record_stream_keeps_the_value(self) -> None:
        tensor = torch.arange(10, device="neuron:1")
        tensor.record_stream(torch.Stream("neuron:1"))
        tensor[2:].record_stream(torch.accelerator.current_stream("neuron:1"))
        torch.empty(0, device="neuron:1").record_stream(torch.accelerator.current_stream("neuron:1"))
        assert tensor.sum().item() == 45


class TestEvents:
    def test_elapsed_time_is_real_time_in_milliseconds(self) -> None:
        start, end = torch.Event("neuron", enable_timing=True), torch.Event("neuron", enable_timing=True)
        began = time.monotonic()
        start.record()
        time.sleep(0.05)
        end.record()
        outer = (time.monotonic() - began) * 1e3
        assert 50 <= start.elapsed_time(end) <= outer
        assert -outer <= end.elapsed_time(start) <= -50

    def test_elapsed_time_needs_timing(self) -> None:
        start, end = torch.Event("neuron"), torch.Event("neuron", enable_timing=True)
        start.record()
        end.record()
        with pytest.raises(ValueError, match="enable_timing=True"):
            start.elapsed_time(end)

    def test_elapsed_time_needs_recorded_events(self) -> None:
        start, end = torch.Event("neuron", enable_timing=True), torch.Event("neuron", enable_timing=True)
        start.record()
        with pytest.raises(ValueError, match="recorded"):
            start.elapsed_time(end)

    def test_unrecorded_event_is_complete(self) -> None:
        event = torch.Event("neuron")
        assert event.query()
        event.synchronize()
        event.wait(torch.accelerator.current_stream())

    def test_recorded_again_moves_forward(self) -> None:
        start, end = torch.Event("neuron", enable_timing=True), torch.Event("neuron", enable_timing=True)
        start.record()
        end.record()
        first = start.elapsed_time(end)
        time.sleep(0.01)
        end.record()
        assert start.elapsed_time(end) >= first + 10

    def test_event_on_a_stream_of_another_device(self) -> None:
        event = torch.Event("neuron:0")
        event.record(torch.accelerator.current_stream("neuron:0"))
        with pytest.raises(ValueError, match=r"neuron:0.*neuron:1"):
            event.record(torch.accelerator.current_stream("neuron:1"))

    def test_profiler_measures_operators_with_events(self) -> None:
        matrix = torch.ones(64, 64, device="neuron:1")
        with torch.autograd.profiler.profile(use_device="neuron") as profiler:
            for _ in range(3):
                matrix @ matrix
        average = next(entry for entry in profiler.key_averages() if entry.key == "aten::mm")
        assert average.count == 3
        assert 0 < average.device_time_total <= average.cpu_time_total + 3_000

    def test_waiting_across_devices(self) -> None:
        event = torch.accelerator.current_stream("neuron:0").record_event()
        waiting = torch.accelerator.current_stream("neuron:1")
        waiting.wait_event(event)
        assert event.device == torch.device("neuron:0")
        assert waiting.device == torch.device("neuron:1")
        assert event.query()
        assert waiting.query()
