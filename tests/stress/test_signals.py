"""Signals in the middle of device work: handlers run, Ctrl-C arrives as KeyboardInterrupt, the device works on, exits are clean."""

from __future__ import annotations

import signal
import time

import pytest

from .helpers import forked, read_line, run, script

# A timer process sends the signal again and again while `work()` runs, so that it lands in many places; every interruption must leave
# the device usable and its memory given back.
INTERRUPTED = """
import gc, os, signal, sys, threading, time, torch
torch.set_num_threads(1)
{setup}
work()
gc.collect()
before = torch.neuron.memory_allocated()
main, stop = threading.main_thread().ident, False
caught = 0
def send(delay):
    time.sleep(delay)
    signal.pthread_kill(main, signal.SIGINT)
for turn in range({turns}):
    sender = threading.Thread(target=send, args=(0.03 + 0.004 * turn,))
    try:
        sender.start()
        while True: work()
    except KeyboardInterrupt: caught += 1
    sender.join()
    reset()
    gc.collect()
    assert torch.neuron.memory_allocated() == before, (turn, torch.neuron.memory_allocated(), before)
work()
print(caught)
"""

WORK = {
    "eager": """
x = torch.randn(64, 64, device="neuron")
def work():
    y = x
    for _ in range(20): y = (y @ x).tanh().cumsum(0).sort(dim=1).values
def reset(): pass
""",
    "copies": """
x = torch.randn(3_000_000)
def work():
    y = x.to("neuron"); z = y.to("neuron:1"); w = z.cpu(); y.copy_(w); x.pin_memory().to("neuron", non_blocking=True)
def reset(): torch.neuron.synchronize()
""",
    "one long operator": """
x = torch.randn(700, 700, device="neuron")
def work(): x @ x @ x
def reset(): pass
""",
    "backward": """
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).to("neuron")
x = torch.ones(4, 64, device="neuron")
def work(): model(x).sum().backward(); model.zero_grad()
def reset(): model.zero_grad()
""",
    "backward with hooks": """
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).to("neuron")
for p in model.parameters(): p.register_hook(lambda g: sum([g, g, g]) / 3)
x = torch.ones(4, 64, device="neuron")
def work(): model(x).sum().backward(); model.zero_grad()
def reset(): model.zero_grad()
""",
    "compiled": """
@torch.compile(backend="neuron")
def f(x):
    for _ in range(30): x = (x @ x).tanh()
    return x
x = torch.randn(64, 64, device="neuron")
def work(): f(x)
def reset(): pass
""",
    "optimizer": """
p = torch.nn.Parameter(torch.ones(200_000, device="neuron")); p.grad = torch.ones_like(p)
optimizer = torch.optim.AdamW([p])
def work(): optimizer.step()
def reset(): pass
""",
    "save and load": """
import io
state = {str(i): torch.ones(50_000, device="neuron") for i in range(8)}
def work():
    buffer = io.BytesIO(); torch.save(state, buffer); buffer.seek(0); torch.load(buffer)
def reset(): pass
""",
    "random numbers": """
def work(): torch.randn(200_000, device="neuron").exponential_(); torch.randperm(50_000, device="neuron")
def reset(): pass
""",
    "generate": """
from transformers import LlamaConfig, LlamaForCausalLM
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
model = LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=None)).to("neuron").eval()
prompt = torch.ones(2, 3, dtype=torch.int64, device="neuron")
def work(): model.generate(prompt, max_new_tokens=20, do_sample=True)
def reset(): pass
""",
}
QUICK = {"eager", "backward", "copies"}


@pytest.mark.parametrize("work", [name if name in QUICK else pytest.param(name, marks=pytest.mark.extra) for name in WORK])
def test_ctrl_c_in(work: str) -> None:
    turns = 15
    assert forked(INTERRUPTED.format(setup=WORK[work], turns=turns)) == str(turns)


@pytest.mark.extra
def test_ctrl_c_while_compiling() -> None:
    """Dynamo may turn the interruption of a compilation into its own error; compiling again works, and nothing is held."""
    out = forked(
        """
        import gc, signal, sys, threading, time, torch
        # An interruption may hit a destructor: Python then reports and drops it.
        report = sys.unraisablehook
        sys.unraisablehook = lambda raised: raised.exc_type is KeyboardInterrupt or report(raised)
        def f(x):
            for _ in range(40): x = (x @ x).tanh() + 1
            return x
        x = torch.ones(8, 8, device="neuron")
        main = threading.main_thread().ident
        gc.collect(); before = torch.neuron.memory_allocated()
        for turn in range(6):
            torch._dynamo.reset()
            compiled = torch.compile(f, backend="neuron")
            threading.Thread(target=lambda: (time.sleep(0.05 * (turn + 1)), signal.pthread_kill(main, signal.SIGINT))).start()
            try:
                compiled(x); time.sleep(2)
            except BaseException as error:
                assert "KeyboardInterrupt" in repr(error) + repr(error.__cause__) + str(error), repr(error)
                del error
        torch._dynamo.reset(); gc.collect()
        assert torch.equal(torch.compile(f, backend="neuron")(x), f(x))
        torch._dynamo.reset(); gc.collect()
        print(torch.neuron.memory_allocated() - before)
        """
    )
    assert int(out) == 0


def test_handlers_run_during_work() -> None:
    """SIGALRM, SIGCHLD and SIGUSR1 handlers written in Python run while the main thread computes on the device, and may use it."""
    out = forked(
        """
        import os, signal, time, torch
        torch.set_num_threads(1)
        x = torch.randn(64, 64, device="neuron"); seen = {"SIGALRM": 0, "SIGCHLD": 0, "SIGUSR1": 0}
        def handler(number, frame):
            seen[signal.Signals(number).name] += 1
            assert (torch.ones(4, device="neuron") + 1).sum().item() == 8
        for name in seen: signal.signal(getattr(signal, name), handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        for turn in range(10):
            if os.fork() == 0: os._exit(0)
            os.kill(os.getpid(), signal.SIGUSR1)
            for _ in range(50): y = (x @ x).softmax(0).sum().item()
            while True:
                try:
                    if os.waitpid(-1, os.WNOHANG)[0] == 0: break
                except ChildProcessError: break
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(all(seen.values()), seen["SIGUSR1"])
        """
    )
    assert out == "True 10"


@pytest.mark.extra
def test_signals_interrupt_system_calls_of_copies() -> None:
    """A timer of a millisecond, without SA_RESTART, during large copies, page hand-back and loading from files: all bytes arrive."""
    out = forked(
        """
        import signal, tempfile, torch
        from safetensors.torch import load_file, save_file
        count = 0
        def handler(*_):
            global count
            count += 1
        signal.signal(signal.SIGALRM, handler); signal.siginterrupt(signal.SIGALRM, True)
        path = tempfile.mkdtemp() + "/file"
        save_file({str(i): torch.full((2_000_000,), float(i)) for i in range(4)}, path)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(10):
            for name, tensor in load_file(path).items():
                on_device = tensor.to("neuron").to("neuron:1")
                assert on_device.min().item() == float(name) == on_device.max().item()
            torch.neuron.empty_cache()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(count > 10)
        """
    )
    assert out == "True"


ENDLESS = """
import faulthandler, os, signal, sys, torch
torch.set_num_threads(1)
x = torch.randn(64, 64, device="{device}", requires_grad=True)
{setup}
print("started", flush=True)
while True: (x @ x).sum().backward()
"""


def end_with(number: int, device: str, setup: str = "") -> tuple[int, str]:
    """Sends a signal to a process that differentiates for ever; returns its exit code and the last line of its complaints."""
    with script(ENDLESS.format(device=device, setup=setup)) as process:
        assert read_line(process) == "started"
        time.sleep(0.2)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        return process.returncode, (stderr.strip().splitlines() or [""])[-1]


@pytest.mark.extra
@pytest.mark.parametrize(
    ("number", "setup"),
    [
        (signal.SIGTERM, ""),
        (signal.SIGINT, ""),
        (signal.SIGTERM, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"),
        (signal.SIGTERM, "signal.signal(signal.SIGTERM, lambda *_: os._exit(8))"),
        (signal.SIGINT, "signal.signal(signal.SIGINT, signal.SIG_DFL)"),
        (signal.SIGHUP, ""),
        (signal.SIGQUIT, ""),
    ],
)
def test_process_ends_as_on_the_cpu(number: int, setup: str) -> None:
    assert end_with(number, "neuron", setup) == end_with(number, "cpu", setup)


def test_faulthandler_writes_tracebacks_and_work_goes_on() -> None:
    with script(ENDLESS.format(device="neuron", setup="faulthandler.register(signal.SIGUSR1, all_threads=True)")) as process:
        assert read_line(process) == "started"
        for _ in range(5):
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.05)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert stderr.count("most recent call first") >= 3
    assert stderr.strip().splitlines()[-1].startswith("KeyboardInterrupt")


@pytest.mark.extra
def test_crash_of_the_users_own_is_reported_by_faulthandler() -> None:
    """No signal handler of ours hides a crash."""
    code = "import ctypes, faulthandler, torch; faulthandler.enable(); torch.ones(2, device='{}') + 1; ctypes.string_at(0)"
    ours, theirs = run(code.format("neuron")), run(code.format("cpu"))
    assert ours.returncode == theirs.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in ours.stderr
