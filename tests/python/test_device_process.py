"""What belongs to a whole process: import, first use, environment, fork, threads and exit. Each case runs in its own interpreter."""

import os
import struct
import subprocess
import sys
import textwrap

import pytest

TIMEOUT = 120
PT_TLS = 7  # ELF program header of thread-local storage


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new interpreter with extra environment variables; returns the finished process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def succeeds(code: str, **environment: str) -> str:
    """Run Python code that must exit with 0 and without complaints; returns what it printed."""
    finished = run(code, **environment)
    assert finished.returncode == 0, finished.stderr
    assert "Traceback" not in finished.stderr, finished.stderr
    return finished.stdout.strip()


class TestFirstUse:
    def test_import_and_queries_do_not_start_the_runtime(self) -> None:
        out = succeeds(
            """
            import torch
            acc = torch.accelerator
            acc.is_available(), acc.device_count(), acc.current_accelerator(), torch.neuron.current_device(), torch.neuron.set_device(2)
            acc.memory.empty_cache(); acc.memory.memory_stats(); acc.memory.empty_host_cache()
            torch.neuron.memory_allocated(), torch.neuron.is_bf16_supported(), torch.neuron.get_device_name()
            torch.manual_seed(0)
            x = torch.randn(4, requires_grad=True); x.sum().backward()
            print(torch.neuron.is_initialized())
            """
        )
        assert out == "False"

    @pytest.mark.parametrize(
        "use",
        [
            "torch.empty(0, device='neuron')",
            "torch.arange(5, device='neuron')",
            "torch.ones(2).to('neuron')",
            "torch.accelerator.current_stream()",
            "torch.accelerator.synchronize()",
            "torch.neuron.init()",
            "torch.randn(3, device='neuron:3')",
            "torch.UntypedStorage(3, device='neuron')",
            "torch.tensor(1, device='neuron')",
        ],
    )
    def test_first_use_can_be_anything(self, use: str) -> None:
        out = succeeds(f"import torch; {use}; print(torch.neuron.is_initialized(), (torch.ones(2, device='neuron') + 1).tolist())")
        assert out == "True [2.0, 2.0]"

    def test_first_use_from_many_threads_at_once(self) -> None:
        out = succeeds(
            """
            import torch, threading
            barrier, results = threading.Barrier(8), []
            def work(core):
                barrier.wait()
                results.append((torch.arange(4, device=f"neuron:{core % 4}") * 2).sum().item())
            threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
            [t.start() for t in threads]; [t.join() for t in threads]
            print(results)
            """
        )
        assert out == str([12] * 8)

    def test_host_tensors_from_before_first_use(self) -> None:
        out = succeeds(
            """
            import torch
            host = torch.arange(1000); storage = host.untyped_storage()
            device = host.to("neuron")
            host.resize_(100000); storage.resize_(0); storage.resize_(64); del storage, host
            print(device.sum().item())
            """
        )
        assert out == "499500"


def test_plugin_fits_into_static_thread_storage() -> None:
    # A library with initial-exec thread-local variables loads only while its whole block fits into the loader's small reserve.
    import torch_neuronx._C as plugin

    with open(plugin.__file__, "rb") as file:
        image = file.read()
    (table,) = struct.unpack_from("<Q", image, 32)
    entry_size, entries = struct.unpack_from("<HH", image, 54)
    sizes = [
        struct.unpack_from("<Q", image, table + entry * entry_size + 40)[0]
        for entry in range(entries)
        if struct.unpack_from("<I", image, table + entry * entry_size)[0] == PT_TLS
    ]
    assert len(sizes) == 1
    assert sizes[0] <= 256


class TestEnvironment:
    def test_two_visible_cores(self) -> None:
        out = succeeds(
            """
            import torch
            print(torch.accelerator.device_count(), torch.ones(1, device="neuron:1").device)
            try: torch.ones(1, device="neuron:2")
            except ValueError as error: print("ValueError", "neuron:2" in str(error))
            """,
            NEURON_RT_VISIBLE_CORES="2-3",
        )
        assert out.splitlines() == ["2 neuron:1", "ValueError True"]

    def test_bad_environment_is_reported_on_use(self) -> None:
        finished = run(
            """
            import torch
            print(torch.accelerator.device_count(), torch.neuron.is_available())
            try: torch.ones(1, device="neuron")
            except Exception as error: print(isinstance(error, RuntimeError), "NEURON_RT_VISIBLE_CORES" in str(error))
            print(torch.ones(2).sum().item())
            """,
            NEURON_RT_VISIBLE_CORES="nonsense",
        )
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.split() == ["0", "False", "True", "True", "2.0"]

    def test_real_streams_when_asked_for(self) -> None:
        out = succeeds(
            """
            import torch
            first, second = torch.Stream("neuron:1"), torch.Stream("neuron:1", priority=-1)
            print(first == second, first.stream_id != 0, first.native_handle is None)
            with first:
                assert torch.accelerator.current_stream() == first and torch.accelerator.current_device_index() == 1
                tensor = torch.ones(1 << 20, device="neuron:1")
                tensor.record_stream(second)
            assert torch.accelerator.current_stream("neuron:1").stream_id == 0
            event = first.record_event(); second.wait_event(event); second.wait_stream(first)
            before = torch.accelerator.memory_allocated("neuron:1"); del tensor
            torch.empty(1, device="neuron:1")
            print(before - torch.accelerator.memory_allocated("neuron:1") >= 1 << 22)
            leaf = torch.ones(4, device="neuron:1", requires_grad=True)
            with second: (leaf * 3).sum().backward()
            print(leaf.grad.tolist())
            ids = {torch.Stream("neuron:0").stream_id for _ in range(200)}
            print(len(ids))
            try: torch.accelerator.set_stream(torch.Stream(stream_id=5000, device_index=1, device_type=first.device_type))
            except ValueError as error: print("ValueError", "5000" in str(error))
            """,
            TORCH_NEURONX_ENABLE_HOST_CC="1",
        )
        assert out.splitlines() == ["False True False", "True", "[3.0, 3.0, 3.0, 3.0]", "32", "ValueError True"]


class TestFork:
    def test_child_of_a_process_that_used_the_device(self) -> None:
        out = succeeds(
            """
            import os, torch
            kept = torch.ones(3, device="neuron"); kept + 1
            pid = os.fork()
            if pid == 0:
                answers = []
                uses = [lambda: torch.ones(1, device="neuron"), lambda: kept + 1, lambda: torch.ones(2).to("neuron"),
                        lambda: torch.arange(3, device="neuron"), lambda: torch.accelerator.current_stream(),
                        lambda: torch.empty(0, device="neuron"), lambda: torch.neuron.init(),
                        lambda: kept.add_(1), lambda: kept.mul_(kept), lambda: kept.copy_(torch.ones(3)), lambda: kept.copy_(kept.flip(0)),
                        lambda: kept.normal_(), lambda: kept.zero_(), lambda: kept.cpu(), lambda: kept.tolist(), lambda: kept[0].item(),
                        lambda: torch.ones(3).copy_(kept), lambda: kept.exp_(), lambda: kept.untyped_storage().resize_(64)]
                for use in uses:
                    try: use(); answers.append("no error")
                    except RuntimeError as error: answers.append("spawn" in str(error))
                answers.append(tuple(kept[None, 1:].t().shape))        # so do shapes, which need no memory
                answers.append((torch.ones(1000) * 2).sum().item())   # and the host
                del kept                                               # and inherited memory can be let go
                print(answers, flush=True)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print((kept * 2).tolist())
            """
        )
        assert out.splitlines() == [str([True] * 19 + [(2, 1), 2000.0]), "[2.0, 2.0, 2.0]"]

    def test_child_of_a_process_that_only_imported(self) -> None:
        out = succeeds(
            """
            import os, torch
            torch.accelerator.device_count(); torch.neuron.set_device(1)
            pid = os.fork()
            if pid == 0:
                print((torch.ones(2, device="neuron") + 1).tolist(), torch.accelerator.current_device_index(), flush=True)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print(torch.neuron.is_initialized(), torch.ones(1, device="neuron").item())
            """
        )
        assert out.splitlines() == ["[2.0, 2.0] 1", "False 1.0"]

    def test_data_loader_workers_forked_after_use(self) -> None:
        out = succeeds(
            """
            import torch
            from torch.utils.data import DataLoader, TensorDataset
            model = torch.nn.Linear(2, 2, device="neuron")
            total = 0
            for _ in range(2):
                for (batch,) in DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2, num_workers=2, pin_memory=True):
                    total += model(batch.to("neuron")).shape[0]
            print(total)
            """
        )
        assert out == "16"


class TestExit:
    @pytest.mark.parametrize(
        "alive",
        [
            "kept = [torch.ones(1000, device=f'neuron:{i}') for i in range(4)]",
            "stream = torch.Stream('neuron'); event = stream.record_event(); torch.accelerator.set_stream(stream)",
            "import threading, time; kept = torch.ones(10, device='neuron')\n"
            "threading.Thread(target=lambda: (kept + 1, time.sleep(60)), daemon=True).start(); time.sleep(0.2)",
            "x = torch.ones(3, device='neuron', requires_grad=True); (x * 2).sum().backward(); graph = (x * 3).sum()",
            "import sys; sys.modules['keep_alive'] = torch.ones(4).pin_memory()",
            "import atexit; t = torch.ones(4, device='neuron'); atexit.register(lambda: print((t * 2).sum().item()))",
            "class Late:\n    def __del__(self): torch.ones(1, device='neuron') + 1\nlate = Late(); late.self = late",
            "conv = torch.nn.Conv2d(3, 8, 3, device='neuron'); y = conv(torch.randn(1, 3, 8, 8, device='neuron'))",
        ],
    )
    def test_exit_with_live_objects(self, alive: str) -> None:
        succeeds("import torch\n" + alive + "\ntorch.ones(2, device='neuron') + 1")

    def test_exit_right_after_backward(self) -> None:
        # The threads of the autograd engine may still hold Python objects when the interpreter begins to shut down.
        for _ in range(6):
            succeeds(
                """
                import torch
                x = torch.ones(3, requires_grad=True)
                sum((x.to(f"neuron:{core}") * 2).sum().to("neuron:0") for core in range(4)).backward()
                """
            )

    def test_exit_from_a_child_process_that_trained(self) -> None:
        out = succeeds(
            """
            import multiprocessing
            def train(queue):
                import torch
                x = torch.ones(3, device="neuron", requires_grad=True)
                (x * 2).sum().backward()
                queue.put(x.grad.tolist())
            if __name__ == "__main__":
                context = multiprocessing.get_context("fork")
                queue = context.SimpleQueue()
                child = context.Process(target=train, args=(queue,))
                child.start(); print(queue.get()); child.join(); print(child.exitcode)
            """
        )
        assert out.splitlines() == ["[2.0, 2.0, 2.0]", "0"]

    def test_exception_ends_the_process_with_its_traceback(self) -> None:
        finished = run("import torch; x = torch.ones(3, device='neuron'); raise KeyError('mine')")
        assert finished.returncode == 1
        assert "KeyError: 'mine'" in finished.stderr

    def test_keyboard_interrupt_leaves_the_device_usable(self) -> None:
        out = succeeds(
            """
            import os, signal, threading, torch
            x = torch.ones(64, 64, device="neuron")
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                while True: (x @ x).sum().item()
            except KeyboardInterrupt: print((x + 1).sum().item())
            """
        )
        assert out == str(2.0 * 64 * 64)
