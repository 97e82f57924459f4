"""What goes wrong while a program is compiled or runs: an error that names the place, and a device that goes on."""

import contextlib
import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from compile_helpers import DEVICE, assert_same, compile_neuron, fresh_compiler, graph_count  # noqa: F401 (an autouse fixture)

import torch_neuronx


@pytest.fixture(autouse=True)
def device_stays_usable() -> Iterator[None]:
    """After each test the device holds what it held before, computes, and compiles."""
    gc.collect()
    before = torch.neuron.memory_allocated()
    yield
    torch._dynamo.reset()
    torch_neuronx._C.clear_compile_cache()
    gc.collect()
    assert torch.neuron.memory_allocated() == before
    x = torch.ones(3, device=DEVICE)
    assert (x + 1).sum().item() == 6
    assert compile_neuron(lambda t: t * 2 + 1)(x).sum().item() == 9


# operators that the compiler does not know


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    """Operators of somebody else: one with a kernel for the host, one that only Python knows, one without any kernel."""
    with torch.library._scoped_library("faults_test", "FRAGMENT") as library:
        library.define("host(Tensor x) -> Tensor")
        library.impl("host", lambda x: x.numpy_like() if hasattr(x, "numpy_like") else torch.add(x, 41), "CPU")
        library.define("python(Tensor x) -> Tensor")
        library.impl("python", lambda x: x * 3, "CompositeExplicitAutograd")
        library.define("nowhere(Tensor x) -> Tensor")
        for name in ("host", "python", "nowhere"):
            torch.library.register_fake(f"faults_test::{name}", torch.empty_like, lib=library)
        yield library


@pytest.mark.parametrize(("name", "expected"), [("host", 42.0), ("python", 3.0)])
def test_operators_of_others_are_called(name: str, expected: float, library: torch.library.Library) -> None:
    operator = getattr(torch.ops.faults_test, name)
    x = torch.ones(3, device=DEVICE)
    found = torch_neuronx.explain(lambda t: operator(t.clone()) + 0, x)
    assert found.error is None
    (call,) = [call for call in found.graphs[0].calls if name in call.opcode]
    assert "another library" in call.reason
    assert_same(compile_neuron(lambda t: operator(t) + 0)(x), torch.full((3,), expected, device=DEVICE))


def test_an_operator_without_kernel_names_itself_and_its_place(library: torch.library.Library) -> None:
    with pytest.raises(NotImplementedError) as caught:
        compile_neuron(lambda t: torch.ops.faults_test.nowhere(t) + 1)(torch.ones(3, device=DEVICE))
    assert "faults_test::nowhere" in str(caught.value)


def test_a_kernel_that_fails_is_named_with_its_graph() -> None:
    x, index = torch.ones(3, device=DEVICE), torch.tensor([7], device=DEVICE)
    with pytest.raises((IndexError, RuntimeError)) as caught:
        compile_neuron(lambda t, i: t.index_select(0, i) * 2)(x, index)
    assert "out of range" in str(caught.value)
    assert "while executing" in str(caught.value) and "index_select" in str(caught.value) and "in graph model_" in str(caught.value)


# memory


def chain(x: torch.Tensor) -> torch.Tensor:
    y = torch.cat([x] * 64)
    return (y @ y.t()).sum()


def test_too_little_memory_names_graph_instruction_and_peak(run_python: Any) -> None:
    finished = run_python(
        """
        import torch
        def chain(x):
            y = torch.cat([x] * 64)
            return (y @ y.t()).sum()
        compiled = torch.compile(chain, backend="neuron")
        x = torch.ones(256, 64, device="neuron")
        for _ in range(2):
            try:
                compiled(x)
            except torch.OutOfMemoryError as error:
                print(error)
            else:
                raise AssertionError("it fits")
        assert torch.neuron.max_memory_allocated() == x.nbytes, "something of the graph has run"
        assert torch.neuron.memory_stats()["num_ooms"] == 2
        small = torch.ones(4, 64, device="neuron")
        assert compiled(small).item() == 256 * 256 * 64
        """,
        env={"SOFTNEURON_HBM_BYTES": "64M"},
    )
    assert " out of memory." in finished.stdout and "in graph model_" in finished.stdout
    assert "needs about" in finished.stdout and "GiB" in finished.stdout
    assert "was not begun" in finished.stdout and "instruction" in finished.stdout


def test_a_training_step_that_just_fits_is_begun(run_python: Any) -> None:
    program = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[m for _ in range(8) for m in (torch.nn.Linear(128, 128), torch.nn.Tanh())]).to("neuron")
        compiled = torch.compile(model, backend="neuron")
        for _ in range(2):
            compiled(torch.ones(8192, 128, device="neuron")).sum().backward()
        print(torch.neuron.max_memory_allocated())
    """
    peak = int(run_python(program).stdout)
    # Free memory lies in pieces.
    assert int(run_python(program, env={"SOFTNEURON_HBM_BYTES": str(peak + (16 << 20))}).stdout) == peak


def test_compiling_needs_no_memory_of_the_device() -> None:
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    x = torch.empty(16, 64, device=DEVICE)
    explained = torch_neuronx.explain(chain, x)
    assert explained.graphs[0].peak_bytes >= (16 * 64) ** 2 * 4
    assert torch.neuron.memory_allocated() - before <= x.nbytes


# exceptions and Ctrl-C


def failing_reader(error: type[BaseException]) -> Callable[..., Any]:
    def read(self: Any) -> Any:
        raise error("broken")

    return read


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_whatever_ends_a_compilation_can_be_repeated(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_neuronx.neuron_dynamo_backend import backend

    compiled, x = compile_neuron(lambda t: t * 11), torch.ones(3, device=DEVICE)
    with monkeypatch.context() as patch:
        patch.setattr(backend.GraphReader, "read", failing_reader(error))
        with pytest.raises(BaseException, match="broken"):
            compiled(x)
    torch._dynamo.reset()
    assert_same(compiled(x), x * 11)


def test_ctrl_c_while_compiling() -> None:
    """Interrupted at many moments; afterwards functions compile. Python drops an interrupt that meets a destructor, hence several."""
    x = torch.ones(3, device=DEVICE)
    for delay in (0.0, 0.02, 0.05, 0.11):
        stop = threading.Event()

        def press(delay: float = delay, stop: threading.Event = stop) -> None:
            while not stop.wait(0.01 + delay):
                signal.raise_signal(signal.SIGINT)

        thread = threading.Thread(target=press)
        interrupts = 0
        deadline = time.monotonic() + 60
        try:
            thread.start()
            while interrupts == 0 and time.monotonic() < deadline:
                torch._dynamo.reset()
                compile_neuron(lambda t: (t * 2).relu().exp().sum() + t)(x)
        except BaseException:  # in the guards of Dynamo an interrupt becomes an AssertionError
            interrupts += 1
        finally:
            while thread.is_alive():
                with contextlib.suppress(KeyboardInterrupt):
                    stop.set()
                    thread.join()
        assert interrupts
        torch._dynamo.reset()
        assert_same(compile_neuron(lambda t: t * 13)(x), x * 13)


def test_ctrl_c_while_running() -> None:
    x = torch.full((200, 200), 0.001, device=DEVICE)

    def long(t: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            t = t @ t
        return t

    compiled = compile_neuron(long)
    expected = compiled(x)
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            compiled(x)
    timer.join()
    assert_same(compiled(x), expected)


def test_an_exception_in_a_python_step_passes_through() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient @ torch.ones(5, 5, device=gradient.device)

    logging.disable()  # records keep the exception, and that the tensors, until the test ends
    with pytest.raises(Exception, match=r"(?i)size|shape|mat"):
        compile_neuron(lambda t: Fails.apply(t).sum())(torch.ones(3, 3, device=DEVICE, requires_grad=True)).backward()
    logging.disable(logging.NOTSET)


def test_a_graph_that_calls_python_runs_its_exceptions(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    compiled = compile_neuron(lambda t: checkpoint(lambda u: torch.nn.functional.dropout(u, 0.5).sin(), t, use_reentrant=False).sum())
    with caplog.at_level(logging.WARNING, logger="torch_neuronx.compile"):
        compiled(x).backward()
    assert x.grad is not None and caplog.messages == []
    assert graph_count() == 2
