"""The cores: counting, naming, selecting, and what threads and forked processes see."""

import os
import threading

import pytest
import torch

CORES = 4
HBM_OF_A_CORE = 24 * 2**30  # Trainium2 with two physical cores per logical core


def test_default_instance_has_four_cores():
    assert torch.neuron.is_available() is True
    assert torch.neuron.device_count() == CORES


@pytest.mark.parametrize(
    ("device", "index"), [(0, 0), (3, 3), ("neuron:2", 2), (torch.device("neuron", 1), 1), (torch.device("neuron:3"), 3)]
)
def test_set_device_accepts(device, index):
    torch.neuron.set_device(device)
    current = torch.neuron.current_device()
    assert current == index
    assert type(current) is int
    assert torch.empty(1, device="neuron").device == torch.device("neuron", index)


@pytest.mark.parametrize("device", ["neuron", torch.device("neuron")])
def test_device_without_index_keeps_the_current_one(device):
    torch.neuron.set_device(2)
    torch.neuron.set_device(device)
    assert torch.neuron.current_device() == 2


@pytest.mark.parametrize("device", [CORES, 7, -1, "neuron:4", torch.device("neuron", 100)])
def test_core_that_does_not_exist(device):
    torch.neuron.set_device(1)
    with pytest.raises(ValueError, match=str(CORES)):
        torch.neuron.set_device(device)
    for function in (
        torch.neuron.get_device_properties,
        torch.neuron.get_device_name,
        torch.neuron.memory_allocated,
        torch.neuron.synchronize,
    ):
        with pytest.raises(ValueError, match=str(CORES)):
            function(device)
    assert torch.neuron.current_device() == 1


@pytest.mark.parametrize("device", ["cpu", "cuda:0", torch.device("cpu"), "no such device", 1.5, [0], object()])
def test_things_that_are_not_cores(device):
    for function in (torch.neuron.set_device, torch.neuron.get_device_name, torch.neuron.get_device_properties):
        with pytest.raises(ValueError):
            function(device)


def test_name_and_properties():
    assert torch.neuron.get_device_name() == "neuron:0"
    assert torch.neuron.get_device_name("neuron:3") == "neuron:3"
    for index in range(CORES):
        properties = torch.neuron.get_device_properties(index)
        assert properties.name == f"neuron:{index}"
        assert properties.total_memory == HBM_OF_A_CORE
        assert properties.core_id == index
        assert "neuron:" in repr(properties)
        assert str(HBM_OF_A_CORE) in repr(properties)
    assert torch.neuron.get_device_capability() == (3, 0)
    assert torch.neuron.is_bf16_supported() is True


def test_peer_access_is_never_possible():
    assert torch.neuron.can_device_access_peer(0, 1) is False
    with pytest.raises(ValueError):
        torch.neuron.can_device_access_peer(0, CORES)


def test_device_context_restores():
    torch.neuron.set_device(1)
    with torch.neuron.device(2):
        assert torch.neuron.current_device() == 2
        with torch.neuron.device("neuron:3"):
            assert torch.neuron.current_device() == 3
        assert torch.neuron.current_device() == 2
    assert torch.neuron.current_device() == 1


def test_device_context_restores_after_an_exception():
    with pytest.raises(KeyError), torch.neuron.device(2):
        raise KeyError
    assert torch.neuron.current_device() == 0


@pytest.mark.parametrize("device", [None, -1, "neuron"])
def test_device_context_that_changes_nothing(device):
    torch.neuron.set_device(2)
    with torch.neuron.device(device):
        assert torch.neuron.current_device() == 2
    assert torch.neuron.current_device() == 2


def test_device_context_of_a_missing_core():
    with pytest.raises(ValueError, match=str(CORES)):
        torch.neuron.device(CORES)


def test_device_of():
    on_core = torch.empty(1, device="neuron:3")
    with torch.neuron.device_of(on_core):
        assert torch.neuron.current_device() == 3
    with torch.neuron.device_of(on_core.untyped_storage()):
        assert torch.neuron.current_device() == 3
    with torch.neuron.device_of(torch.empty(1)):
        assert torch.neuron.current_device() == 0


def test_exchange_device():
    assert torch.neuron._exchange_device(2) == 0
    assert torch.neuron._exchange_device(-1) == -1
    assert torch.neuron._maybe_exchange_device(1) == 2
    assert torch.neuron.current_device() == 1


def test_accelerator_and_device_module_agree():
    torch.accelerator.set_device_index(3)
    assert torch.neuron.current_device() == 3
    torch.neuron.set_device(1)
    assert torch.accelerator.current_device_index() == 1


def in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_new_thread_sees_the_main_threads_device():
    torch.neuron.set_device(2)
    assert in_thread(torch.neuron.current_device) == 2
    assert in_thread(lambda: torch.empty(1, device="neuron").device) == torch.device("neuron:2")


def test_thread_keeps_its_own_choice():
    chosen = threading.Event()
    main_moved = threading.Event()
    seen = []

    def work():
        torch.neuron.set_device(1)
        chosen.set()
        main_moved.wait(30)
        seen.append(torch.neuron.current_device())

    thread = threading.Thread(target=work)
    thread.start()
    assert chosen.wait(30)
    assert torch.neuron.current_device() == 0
    torch.neuron.set_device(3)
    main_moved.set()
    thread.join()
    assert seen == [1]


def test_asking_does_not_start_the_runtime(run_python):
    run_python(
        """
        import torch
        assert torch.neuron.is_available() and torch.neuron.device_count() == 4
        torch.neuron.set_device(torch.device("neuron", 2))
        assert torch.neuron.current_device() == 2 and torch.neuron.get_device_name() == "neuron:2"
        torch.manual_seed(3)
        torch.neuron.manual_seed_all(4)
        torch.neuron.get_rng_state_all()
        assert torch.neuron.memory_allocated() == 0 and torch.neuron.mem_get_info()[0] == torch.neuron.mem_get_info()[1] > 0
        torch.neuron.synchronize()
        torch.neuron.empty_cache()
        assert not torch.neuron.is_initialized() and not torch.neuron._initialized
        torch.neuron.init()
        torch.neuron.init()
        assert torch.neuron.is_initialized() and torch.neuron._initialized
        import torch_neuronx
        assert torch_neuronx.is_neuron_runtime_initialized()
        """
    )


def test_tensor_properties_and_streams_start_the_runtime(run_python):
    run_python(
        """
        import os, torch
        uses = [lambda: torch.ones(1, device="neuron"), torch.neuron.get_device_properties, torch.neuron.current_stream]
        for use in uses:
            child = os.fork()
            if child == 0:
                before = torch.neuron.is_initialized()
                use()
                os._exit(0 if not before and torch.neuron.is_initialized() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, use
        """
    )


def test_forked_child_may_ask_and_gets_a_clear_error(run_python):
    output = run_python(
        """
        import os, torch
        torch.ones(1, device="neuron")
        child = os.fork()
        if child == 0:
            try:
                assert torch.neuron.is_available() and torch.neuron.device_count() == 4
                assert torch.neuron._is_in_bad_fork() and not torch.neuron.is_initialized()
                torch.manual_seed(0)  # must not fail in a data loader's worker
                for use in (torch.neuron.init, torch.neuron.synchronize, lambda: torch.ones(1, device="neuron")):
                    try:
                        use()
                    except RuntimeError as error:
                        assert "spawn" in str(error), error
                    else:
                        raise AssertionError("use after fork went unnoticed")
                print("child is fine", flush=True)
                os._exit(0)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not torch.neuron._is_in_bad_fork()
        assert torch.ones(2, device="neuron").sum().item() == 2
        """
    ).stdout
    assert "child is fine" in output


def test_fork_before_first_use_is_fine(run_python):
    run_python(
        """
        import os, torch
        assert torch.neuron.is_available()
        child = os.fork()
        if child == 0:
            ok = not torch.neuron._is_in_bad_fork() and torch.ones(3, device="neuron").sum().item() == 3
            os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )


def test_sleep_is_a_no_op():
    assert torch.neuron._sleep(10**12) is None


def test_spawned_process_can_use_the_device(tmp_path, run_python):
    script = tmp_path / "spawned.py"
    script.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(rank):\n"
        "    torch.neuron.set_device(rank)\n"
        "    assert torch.ones(4, device='neuron').sum().item() == 4\n"
        "if __name__ == '__main__':\n"
        "    torch.ones(1, device='neuron')\n"
        "    mp.spawn(work, nprocs=2)\n"
        "    print('both ranks done')\n"
    )
    assert "both ranks done" in run_python(f"import runpy; runpy.run_path({os.fspath(script)!r}, run_name='__main__')").stdout
