"""Streams and events: types, current stream, contexts, errors, real times."""

import threading
import time

import pytest
import torch


def test_types():
    stream = torch.neuron.Stream()
    assert isinstance(stream, torch.Stream)
    assert stream.device.type == "neuron"
    assert stream.device == torch.device("neuron:0")
    assert isinstance(torch.neuron.Event(), torch.Event)
    assert isinstance(torch.neuron.current_stream(), torch.neuron.Stream)
    assert "neuron:0" in repr(stream)


@pytest.mark.parametrize("device", [2, "neuron:2", torch.device("neuron", 2)])
def test_stream_of_a_device(device):
    assert torch.neuron.Stream(device=device).device == torch.device("neuron:2")
    assert torch.neuron.current_stream(device).device == torch.device("neuron:2")
    assert torch.neuron.default_stream(device).device == torch.device("neuron:2")


@pytest.mark.parametrize("device", [4, "neuron:9", "cpu", 1.5])
def test_stream_of_something_else(device):
    for function in (torch.neuron.Stream, torch.neuron.current_stream, torch.neuron.default_stream):
        with pytest.raises(ValueError):
            function(device)


def test_streams_compare_and_hash():
    first = torch.neuron.default_stream(1)
    again = torch.neuron.current_stream(1)
    other = torch.neuron.default_stream(2)
    assert first == again
    assert hash(first) == hash(again)
    assert first != other
    assert len({first, again, other}) == 2


def test_new_stream_is_the_default_stream_in_single_stream_mode():
    assert torch.neuron.Stream(priority=-1) == torch.neuron.default_stream()


def test_host_collectives_switch_to_several_streams(run_python):
    run_python(
        """
        import torch
        side, urgent, default = torch.neuron.Stream(), torch.neuron.Stream(priority=-1), torch.neuron.default_stream()
        assert len({side, urgent, default}) == 3
        assert (side.priority, urgent.priority) == (0, -1)
        with torch.neuron.stream(side) as nothing:
            assert nothing is None and torch.neuron.current_stream() == side
            with torch.neuron.stream(urgent), torch.neuron.stream(None):
                assert torch.neuron.current_stream() == urgent
            assert torch.neuron.current_stream() == side
        assert torch.neuron.current_stream() == default
        context = torch.neuron.stream(side)
        with context, torch.neuron.stream(urgent), context:
            assert torch.neuron.current_stream() == side
        assert torch.neuron.current_stream() == default
        torch.neuron.set_stream(side)
        assert torch.accelerator.current_stream() == side
        torch.accelerator.set_stream(urgent)
        assert torch.neuron.current_stream() == urgent
        torch.neuron.set_stream(None)
        assert torch.neuron.current_stream() == urgent
        """,
        env={"TORCH_NEURONX_ENABLE_HOST_CC": "1"},
    )


def test_stream_context_switches_and_restores_the_device():
    torch.neuron.set_device(1)
    with torch.neuron.stream(torch.neuron.Stream(device=3)):
        assert torch.neuron.current_device() == 3
    assert torch.neuron.current_device() == 1
    with pytest.raises(KeyError), torch.neuron.stream(torch.neuron.Stream(device=2)):
        raise KeyError
    assert torch.neuron.current_device() == 1


def test_set_stream_selects_its_device():
    torch.neuron.set_stream(torch.neuron.default_stream(2))
    assert torch.neuron.current_device() == 2


def test_stream_that_was_never_created():
    unknown = torch.neuron.Stream(stream_id=12345, device_index=0, device_type=torch.neuron.current_stream().device_type)
    with pytest.raises(ValueError):
        torch.neuron.set_stream(unknown)


def test_waiting_and_recording():
    side = torch.neuron.Stream()
    event = side.record_event()
    assert isinstance(event, torch.neuron.Event)
    assert side.record_event(event) is event
    torch.neuron.wait_event(event)
    torch.neuron.wait_stream(side)
    side.wait_event(event)
    side.wait_stream(torch.neuron.current_stream())
    recorded = torch.neuron.record_event()
    assert recorded.query()
    assert torch.neuron.query()
    assert side.query()
    side.synchronize()
    event.wait(side)
    event.synchronize()
    assert torch.neuron.Event().query()


def test_record_stream_accepts_our_streams():
    tensor = torch.ones(8, device="neuron")
    tensor.record_stream(torch.neuron.Stream())
    assert tensor.sum().item() == 8


def test_event_measures_real_time():
    start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    start.record()
    began = time.perf_counter()
    time.sleep(0.05)
    elapsed = (time.perf_counter() - began) * 1000
    end.record(torch.neuron.current_stream())
    measured = start.elapsed_time(end)
    assert elapsed - 1 <= measured <= elapsed + 50


def test_event_without_timing_has_no_times():
    start, end = torch.neuron.Event(), torch.neuron.Event()
    start.record()
    end.record()
    with pytest.raises(ValueError):
        start.elapsed_time(end)
    with pytest.raises(ValueError):
        torch.neuron.Event(enable_timing=True).elapsed_time(torch.neuron.Event(enable_timing=True))
    with pytest.raises(TypeError):
        start.elapsed_time(torch.neuron.current_stream())


def test_times_between_our_events_and_generic_ones():
    start, end = torch.neuron.Event(enable_timing=True), torch.Event(device="neuron", enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0


def test_event_across_processes_is_refused():
    with pytest.raises(RuntimeError, match="processes"):
        torch.neuron.Event(interprocess=True)


def test_generic_streams_work_with_ours():
    generic = torch.Stream(device="neuron:1")
    event = torch.Event(device="neuron:1")
    torch.neuron.Stream(device=1).wait_stream(generic)
    torch.neuron.Stream(device=1).record_event(event)
    with torch.neuron.stream(generic):
        assert torch.neuron.current_stream() == generic


def test_current_stream_is_per_thread():
    seen = []
    with torch.neuron.stream(torch.neuron.Stream(device=2)):
        thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_stream(2)))
        thread.start()
        thread.join()
    assert seen == [torch.neuron.default_stream(2)]
