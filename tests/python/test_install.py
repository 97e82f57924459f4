"""The installed package: metadata, autoload, what happens when something about the installation is wrong, and leaving the process."""

import importlib.metadata
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import torch_neuronx
from torch_neuronx import _C, _build_info, _version

PACKAGE = Path(torch_neuronx.__file__).parent
AUTOLOAD_BUDGET_MS = 50

# Runs before `import torch` in the processes that get a package of their own: an editable installation finds the original otherwise.
USE_COPY = """
import sys, warnings
sys.path.insert(0, {folder!r})
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
"""

REPORT = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    import torch_neuronx
    assert torch_neuronx.__file__.startswith(sys.path[0]), torch_neuronx.__file__
    print(torch.neuron.is_available(), torch.neuron.device_count(), (torch.ones(2) + 1).tolist())
    torch.manual_seed(1)
for warning in caught:
    print("WARNING", warning.message)
try:
    torch.ones(1, device="neuron")
except RuntimeError as error:
    print("ERROR", error)
"""


def test_metadata():
    distribution = importlib.metadata.distribution("torch-neuronx")
    assert distribution.version == torch_neuronx.__version__ == _version.__version__
    assert torch_neuronx.__version__.startswith("2.13.0+softneuron.")
    (requirement,) = [Requirement(text) for text in distribution.requires or [] if Requirement(text).name == "torch"]
    assert requirement.specifier.contains(str(torch.__version__), prereleases=True)
    assert requirement.specifier.contains("2.13.0+cpu")


def test_entry_points():
    (backend,) = importlib.metadata.entry_points(group="torch.backends", name="torch_neuronx")
    assert backend.load() is torch_neuronx._autoload
    (compiler,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="neuron")
    assert callable(compiler.load())


def test_types_are_shipped():
    for name in ("py.typed", "_C.pyi", "_build_info.pyi"):
        assert (PACKAGE / name).is_file(), name


def test_build_records_its_torch():
    assert _build_info.TORCH_VERSION.split(".")[:2] == str(torch.__version__).split(".")[:2]


def test_stub_describes_the_plugin():
    stub = (PACKAGE / "_C.pyi").read_text()
    missing = [name for name in dir(_C) if not name.startswith("__") and name not in stub]
    assert missing == []


def copy_package(target: Path, *, plugin: str, built_for: str | None) -> str:
    """Copy the package. `plugin`: "same", "truncated" or "missing"; `built_for` None leaves out what the build writes."""
    package = target / "torch_neuronx"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__"))
    if plugin != "missing":
        binary = Path(_C.__file__).read_bytes()
        (package / Path(_C.__file__).name).write_bytes(binary if plugin == "same" else binary[: len(binary) // 2])
    if built_for is not None:
        (package / "_build_info.py").write_text(f'TORCH_VERSION = "{built_for}"\n')
    return str(target)


@pytest.mark.parametrize(
    ("plugin", "built_for", "said"),
    [
        ("missing", None, "no compiled plugin"),
        ("missing", _build_info.TORCH_VERSION, "could not be loaded"),
        ("truncated", _build_info.TORCH_VERSION, "could not be loaded"),
        ("same", "2.12.1", "built for torch 2.12"),
        ("truncated", "2.99.0", "built for torch 2.99"),
    ],
)
def test_broken_installation_gives_one_warning(run_python, tmp_path, plugin, built_for, said):
    folder = copy_package(tmp_path, plugin=plugin, built_for=built_for)
    result = run_python(USE_COPY.format(folder=folder) + REPORT)
    lines = result.stdout.splitlines()
    assert lines[0] == "False 0 [2.0, 2.0]"
    warnings = [line for line in lines if line.startswith("WARNING")]
    assert len(warnings) == 1, lines
    assert said in warnings[0]
    assert "install" in warnings[0]
    assert lines[-1].startswith("ERROR")
    assert said in lines[-1]
    assert result.stderr == ""


def test_broken_installation_when_warnings_are_errors(run_python, tmp_path):
    folder = copy_package(tmp_path, plugin="missing", built_for=None)
    result = run_python(USE_COPY.format(folder=folder) + 'warnings.simplefilter("error")\nimport torch\nprint(torch.neuron.is_available())')
    assert result.stdout == "False\n"
    assert "no compiled plugin" in result.stderr


def test_copy_of_a_sound_installation_works(run_python, tmp_path):
    folder = copy_package(tmp_path, plugin="same", built_for=_build_info.TORCH_VERSION)
    assert run_python(USE_COPY.format(folder=folder) + REPORT).stdout == "True 4 [2.0, 2.0]\n"


def test_import_torch_inside_a_source_folder_without_plugin(run_python, tmp_path):
    folder = copy_package(tmp_path, plugin="missing", built_for=None)
    result = run_python(USE_COPY.format(folder="") + "import torch; print(torch.neuron.is_available())", cwd=folder)
    assert result.stdout == "False\n"
    assert result.stderr.count("RuntimeWarning") == 1


def test_autoload_can_be_switched_off(run_python):
    output = run_python(
        """
        import torch
        print(hasattr(torch, "neuron"))
        import torch_neuronx
        print(torch.neuron.is_available(), torch.ones(2, device="neuron").device)
        """,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    ).stdout
    assert output == "False\nTrue neuron:0\n"


@pytest.mark.parametrize("first", ["torch_neuronx", "torch_neuronx.neuron", "torch_neuronx._registration", "torch"])
def test_any_import_order_works(run_python, first):
    result = run_python(
        f"""
        import {first}
        import torch, torch_neuronx
        torch_neuronx._autoload()
        assert torch.neuron is torch_neuronx.neuron
        print(torch.neuron.is_available())
        """
    )
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_another_private_backend_is_reported_not_raised(run_python):
    result = run_python(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        import torch_neuronx
        print(torch_neuronx.__version__)
        """,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert result.stdout == f"{torch_neuronx.__version__}\n"
    assert result.stderr.count("RuntimeWarning") == 1


def test_autoload_imports_nothing_heavy(run_python):
    code = "import sys, torch; print(*sorted(sys.modules), sep='\\n')"
    without = set(run_python(code, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout.split())
    added = set(run_python(code).stdout.split()) - without
    ours = {name for name in added if name.startswith(("torch_neuronx", "torch.neuron"))}
    # Reading entry points is torch's own doing, and takes modules of the standard library.
    foreign = {name for name in added - ours if name.split(".")[0] not in sys.stdlib_module_names}
    assert "torch_neuronx._C" in ours
    assert foreign == set()


def test_autoload_takes_little_time(run_python):
    code = """
        import time, torch
        start = time.process_time()
        torch._import_device_backends()
        print((time.process_time() - start) * 1000)
    """
    # Processor time, and the best of several runs: what other processes of the machine do can only add to it.
    times = [float(run_python(code, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout) for _ in range(5)]
    assert min(times) <= AUTOLOAD_BUDGET_MS, times


EXITS = {
    "live tensors and streams": """
        import torch
        keep = [torch.randn(64, 64, device=f"neuron:{index}", requires_grad=True) for index in range(4)]
        view = keep[0][::2]
        stream, event = torch.neuron.Stream(device=1), torch.neuron.Event(enable_timing=True)
        event.record()
        loss = (keep[0] @ keep[0]).sum()
        torch.ones(8, pin_memory=True)
        """,
    "cyclic garbage": """
        import torch
        class Node: pass
        node = Node(); node.me = node; node.tensor = torch.ones(1000, device="neuron")
        """,
    # (One that is inside an operator while the interpreter shuts down aborts the process on every device of PyTorch, the CPU included.)
    "daemon thread that holds tensors": """
        import threading, torch
        ready = threading.Event()
        def work():
            kept = torch.randn(128, 128, device="neuron:1")
            loss = (kept @ kept).sum().item()
            ready.set()
            threading.Event().wait()
        threading.Thread(target=work, daemon=True).start()
        ready.wait()
        """,
    "threads that outlive the main thread": """
        import threading, time, torch
        def work():
            time.sleep(0.3)
            assert torch.ones(10, device="neuron").sum().item() == 10
        for _ in range(3):
            threading.Thread(target=work).start()
        """,
    "backward graph alive": """
        import torch
        layer = torch.nn.Linear(8, 8, device="neuron")
        output = layer(torch.ones(2, 8, device="neuron")).sum()
        output.backward(retain_graph=True)
        """,
}


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS.keys())
def test_leaving_the_process_is_clean(run_python, code):
    result = run_python(code)
    assert result.stderr == ""


def test_uncaught_exception_leaves_only_its_traceback(run_python):
    result = run_python("import torch\nx = torch.ones(3, device='neuron')\nraise KeyError('mine')", check=False)
    assert result.returncode == 1
    assert result.stderr.rstrip().endswith("KeyError: 'mine'")


def test_ctrl_c_stops_device_work():
    code = """
        import signal, torch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit "ignore"
        weight = torch.nn.Parameter(torch.randn(64, 64, device="neuron"))
        optimizer = torch.optim.AdamW([weight])
        print("working", flush=True)
        try:
            while True:
                (weight @ weight).sum().backward()
                optimizer.step()
        except KeyboardInterrupt:
            torch.neuron.synchronize()
            print("still usable", torch.ones(3, device="neuron").sum().item(), flush=True)
            raise
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "working\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert output == "still usable 3.0\n"
    assert process.returncode in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in errors
