"""The end of the process at awkward moments: exit codes and complaints are those of the same program on the CPU, and it does end."""

from __future__ import annotations

import textwrap

import pytest

from .helpers import run_forked

# Programs as text with {device}; each is run on both devices. What they print must agree as well.
PROGRAMS = {
    "backward in a thread": """
        import threading, time
        x = torch.ones(100, device="{device}", requires_grad=True)
        def work():
            for _ in range(300): (x * 2).sum().backward()
        threading.Thread(target=work).start()
        time.sleep(0.05)
    """,
    "sys.exit in a thread": """
        import threading, sys
        def work(): torch.ones(3, device="{device}").add_(1); sys.exit(5)
        thread = threading.Thread(target=work); thread.start(); thread.join(); print("after")
    """,
    "sys.exit with a code during backward": """
        import sys
        x = torch.ones(3, device="{device}", requires_grad=True)
        x.register_hook(lambda g: sys.exit(5))
        (x * 2).sum().backward()
    """,
    "os._exit during backward": """
        import os
        x = torch.ones(3, device="{device}", requires_grad=True)
        x.register_hook(lambda g: os._exit(6))
        (x * 2).sum().backward()
    """,
    "globals, cycles and finalizers": """
        import weakref
        class Holder:
            def __init__(self): self.me, self.t = self, torch.ones(5, device="{device}")
            def __del__(self): (self.t * 2).sum().item()
        kept, tensor = [Holder() for _ in range(5)], torch.ones(4, device="{device}")
        finalizer = weakref.finalize(kept[0], lambda t=tensor: print(t.sum().item()))
        module = torch.nn.Linear(3, 3, device="{device}"); module.me = [module]
    """,
    "work at exit": """
        import atexit
        x = torch.ones(4, device="{device}", requires_grad=True)
        atexit.register(lambda: ((x * 3).sum().backward(), print(x.grad.tolist())))
    """,
    "first use at exit": """
        import atexit
        atexit.register(lambda: print(torch.ones(3, device="{device}").sum().item()))
    """,
    "live DataLoader": """
        from torch.utils.data import DataLoader
        loader = DataLoader(torch.arange(40.0), 4, num_workers=2, persistent_workers=True, pin_memory=True)
        iterator = iter(loader)
        print(next(iterator).to("{device}").sum().item())
    """,
    "exception during import": """
        import sys, pathlib, tempfile
        folder = pathlib.Path(tempfile.mkdtemp()); sys.path.insert(0, str(folder))
        (folder / "broken.py").write_text("import torch\\nx = torch.ones(3, device='{device}')\\nraise KeyError(x.sum().item())")
        import broken
    """,
    "fork without exec": """
        import os
        x = torch.ones(3, device="{device}")
        child = os.fork()
        if child: print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.sum().item())
    """,
    "fork without exec after autograd": """
        import os
        x = torch.ones(3, device="{device}", requires_grad=True); (x * 2).sum().backward()
        child = os.fork()
        if child: print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), x.grad.sum().item())
    """,
    "multiprocessing child that raises": """
        import multiprocessing
        def work(): raise SystemExit(9)
        x = torch.ones(3, device="{device}")
        child = multiprocessing.get_context("fork").Process(target=work); child.start(); child.join(); print(child.exitcode)
    """,
    "thread that waits in a queue": """
        import queue, threading
        waiting = queue.Queue()
        def work():
            mine = torch.ones(3, device="{device}") + 1
            waiting.get()
        threading.Thread(target=work, daemon=True).start()
        torch.ones(1, device="{device}").item()
    """,
    "compiled function alive": """
        f = torch.compile(lambda x: (x * 2).sum(), backend="{backend}")
        x = torch.ones(3, device="{device}", requires_grad=True)
        f(x).backward(); y = f(x); print(x.grad.tolist())
    """,
    "error inside a compiled function": """
        @torch.compile(backend="{backend}")
        def f(x): return x.view(7)
        f(torch.ones(3, device="{device}"))
    """,
    "generator and profiler alive": """
        def numbers():
            t = torch.ones(3, device="{device}")
            while True: yield t.sum().item()
        alive = numbers(); print(next(alive))
        profiler = torch.autograd.profiler.profile(); profiler.__enter__(); torch.ones(3, device="{device}") + 1
    """,
    "anomaly mode error": """
        torch.autograd.set_detect_anomaly(True)
        x = torch.zeros(3, device="{device}", requires_grad=True)
        (x.sqrt() * 0).sum().backward()
    """,
    "thread pool": """
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(4)
        x = torch.ones(50, 50, device="{device}")
        futures = [pool.submit(lambda: (x @ x).sum().item()) for _ in range(50)]
        print(futures[0].result())
    """,
    "stdout closed": """
        import os
        x = torch.ones(3, device="{device}"); os.close(1); print(x.sum().item())
    """,
    "os.abort": """
        import os
        x = torch.ones(3, device="{device}") + 1; os.abort()
    """,
    "recursion in a hook": """
        import sys
        sys.setrecursionlimit(200)
        x = torch.ones(3, device="{device}", requires_grad=True)
        def deep(g): return deep(g)
        x.register_hook(deep)
        (x * 2).sum().backward()
    """,
}
QUICK = {"backward in a thread", "globals, cycles and finalizers", "live DataLoader"}


def end_of(program: str, device: str) -> tuple[int, str, str]:
    """Exit code, output and the last line of the complaints; frames and addresses differ between any two runs, so they are left out.

    What a process that crashes still says (an open profiler at exit, on the CPU too) depends on the moment.
    """
    code = "import torch\n" + textwrap.dedent(program).replace("{device}", device)
    finished = run_forked(code.replace("{backend}", "neuron" if device == "neuron" else "aot_eager"), timeout=90)
    complaint = (finished.stderr.strip().splitlines() or [""])[-1] if finished.returncode >= 0 else ""
    return finished.returncode, finished.stdout, complaint


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.extra) for name in PROGRAMS])
def test_ends_as_on_the_cpu(name: str) -> None:
    assert end_of(PROGRAMS[name], "neuron") == end_of(PROGRAMS[name], "cpu")


@pytest.mark.extra
@pytest.mark.parametrize("moment", ["before the first use", "during the first use", "in the middle"])
def test_threads_that_still_start_work_when_the_main_thread_ends(moment: str) -> None:
    """Threads that are not daemons are waited for: whatever the main thread interrupts, their work is completed."""
    first = {"before the first use": "time.sleep(0.3)", "during the first use": "", "in the middle": "torch.ones(1, device='neuron')"}[
        moment
    ]
    out = run_forked(
        f"""
        import threading, time, torch
        def work(index):
            {first or "pass"}
            for _ in range(30): x = torch.ones(100, device=f"neuron:{{index % 4}}", requires_grad=True); (x * 2).sum().backward()
            done.append(index)
            if len(done) == 6: print("all", flush=True)
        done = []
        for index in range(6): threading.Thread(target=work, args=(index,)).start()
        """
    )
    assert (out.returncode, out.stdout.strip(), out.stderr) == (0, "all", "")


@pytest.mark.extra
def test_daemon_threads_that_wait_do_not_disturb() -> None:
    """Daemon threads asleep with device tensors in their frames, ten times; computing ones are a documented limit."""
    for _ in range(10):
        out = run_forked(
            """
            import threading, time, torch
            def work():
                x = torch.ones(1000, device="neuron", requires_grad=True); (x * 2).sum().backward()
                ready.release(); time.sleep(100)
            ready = threading.Semaphore(0)
            for _ in range(4): threading.Thread(target=work, daemon=True).start()
            for _ in range(4): ready.acquire()
            """
        )
        assert (out.returncode, out.stderr) == (0, "")
