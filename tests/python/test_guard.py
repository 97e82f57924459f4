"""The memory guard (docs/guard.md): stray accesses end a process with a report, and ordinary programs do not notice it."""

import re
import signal
import subprocess

import pytest
from conftest import RunPython

# Operators whose kernels touch memory by address: `sloppy::*` are CPU kernels, which the device runs on aliases as registered kernels;
# `stray::peek` is a kernel for the device that the plugin knows nothing of.
OPERATORS = """
    import ctypes, torch
    def byte(address): return ctypes.c_ubyte.from_address(address)
    @torch.library.custom_op("sloppy::write", mutates_args=("x",), device_types="cpu")
    def write(x: torch.Tensor, offset: int) -> None: byte(x.data_ptr() + offset).value = 1
    @torch.library.custom_op("sloppy::read_at", mutates_args=(), device_types="cpu")
    def read_at(x: torch.Tensor, address: int) -> int: return byte(address).value
    @torch.library.custom_op("stray::peek", mutates_args=(), device_types="neuron")
    def peek(x: torch.Tensor) -> int: return byte(x.data_ptr()).value
"""


@pytest.fixture
def guarded(run_python: RunPython) -> RunPython:
    """Run code after OPERATORS under the guard."""

    def run(code: str, **options: object) -> subprocess.CompletedProcess[str]:
        env = {"SOFTNEURON_GUARD": "1", **options.pop("env", {})}  # type: ignore[dict-item]
        lines = [line.strip() if not line.startswith("        ") else line[4:] for line in OPERATORS.splitlines()]
        return run_python("\n".join(lines) + "\n" + code, env=env, **options)

    return run


def killed_by(number: signal.Signals, finished: subprocess.CompletedProcess[str]) -> str:
    """Check how the process ended; return the guard's report."""
    assert finished.returncode == -number, finished.stderr
    report = finished.stderr[finished.stderr.index("softneuron guard:") :]
    assert "Python" in report and 'File "<string>"' in report, "the Python stack follows"
    return report


class TestReports:
    def test_stray_read_names_address_and_block(self, guarded: RunPython) -> None:
        finished = guarded(
            "x = torch.empty(10, device='neuron:1'); print(hex(x.data_ptr()), flush=True)\nbyte(x.data_ptr() + 5).value", check=False
        )
        address = finished.stdout.strip()
        report = killed_by(signal.SIGSEGV, finished)
        assert "host access to device memory outside kernels and copies" in report
        assert f"read at {hex(int(address, 16) + 5)}" in report
        assert "operator: none" in report
        assert "last operator of this thread: aten::empty.memory_format" in report
        assert f"block: 40 bytes at {address} of neuron:1, allocated by aten::empty.memory_format" in report
        assert "place: byte 5 of it" in report

    def test_stray_write_between_operators(self, guarded: RunPython) -> None:
        finished = guarded("x = torch.ones(10, device='neuron') * 2\nbyte(x.data_ptr()).value = 3", check=False)
        report = killed_by(signal.SIGSEGV, finished)
        assert "write at" in report
        assert "last operator of this thread: aten::mul.Tensor" in report

    def test_kernel_that_the_plugin_does_not_know_is_named(self, guarded: RunPython) -> None:
        report = killed_by(signal.SIGSEGV, guarded("torch.ops.stray.peek(torch.ones(3, device='neuron'))", check=False))
        assert "host access to device memory" in report
        assert "operator: stray::peek" in report

    @pytest.mark.parametrize("size", [64, 65, 4096, 5 << 20])
    def test_overrun_by_one_byte(self, guarded: RunPython, size: int) -> None:
        code = f"torch.ops.sloppy.write(torch.zeros({size}, dtype=torch.uint8, device='neuron'), {size})"
        report = killed_by(signal.SIGSEGV if size % 64 == 0 else signal.SIGABRT, guarded(code, check=False))
        assert "operator: sloppy::write" in report
        assert f"block: {size} bytes" in report
        assert "place: 1 bytes after its last byte" in report

    def test_underrun_by_one_byte(self, guarded: RunPython) -> None:
        report = killed_by(signal.SIGABRT, guarded("torch.ops.sloppy.write(torch.zeros(8, device='neuron'), -1)", check=False))
        assert "operator: sloppy::write" in report
        assert "place: 1 bytes before its begin" in report

    def test_use_after_free(self, guarded: RunPython) -> None:
        code = """
x = torch.ones(1000, device='neuron'); address = x.data_ptr(); y = x + 1; del x
for _ in range(1000): y = y + 1
torch.ops.sloppy.read_at(y, address)
"""
        report = killed_by(signal.SIGSEGV, guarded(code, check=False))
        assert "access to device memory that was freed" in report
        assert "operator: sloppy::read_at" in report
        assert "block: 4000 bytes" in report
        assert "freed by: aten::add.Tensor" in report

    def test_report_file(self, guarded: RunPython, tmp_path_factory: pytest.TempPathFactory) -> None:
        path = tmp_path_factory.mktemp("guard") / "report.txt"
        code = "byte(torch.ones(3, device='neuron').data_ptr()).value"
        killed_by(signal.SIGSEGV, guarded(code, check=False, env={"SOFTNEURON_GUARD_REPORT": str(path)}))
        assert re.search(r"block: 12 bytes at 0x[0-9a-f]+ of neuron:0", path.read_text())

    def test_accesses_inside_registered_kernels_pass(self, guarded: RunPython) -> None:
        code = """
x = torch.zeros(65, dtype=torch.uint8, device='neuron')
torch.ops.sloppy.write(x, 64)
print(x[64].item(), torch.ops.sloppy.read_at(x, x.data_ptr() + 64))
"""
        assert guarded(code).stdout.split() == ["1", "1"]

    def test_without_the_guard_nothing_happens(self, guarded: RunPython) -> None:
        assert guarded("print(torch.ops.stray.peek(torch.ones(3, device='neuron')))", env={"SOFTNEURON_GUARD": "0"}).stdout.strip() == "0"

    def test_bad_value_is_named(self, guarded: RunPython) -> None:
        finished = guarded("torch.ones(3, device='neuron')", check=False, env={"SOFTNEURON_GUARD": "maybe"})
        assert finished.returncode == 1
        assert "SOFTNEURON_GUARD" in finished.stderr and "maybe" in finished.stderr

    @pytest.mark.parametrize("use", ["x.numpy()", "x.__array__()", "memoryview(x)", "numpy.from_dlpack(x)"])
    def test_what_can_be_refused_raises(self, guarded: RunPython, use: str) -> None:
        setup = "import numpy; x = torch.ones(3, device='neuron')"
        code = f"{setup}\ntry: {use}\nexcept Exception as error: print(type(error).__name__, x.sum().item())"
        assert re.fullmatch(r"(TypeError|BufferError|RuntimeError) 3.0", guarded(code).stdout.strip())


TRAINING = """
import os, io, threading
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
def parts(device):
    torch.manual_seed(1)
    head = [nn.Dropout(0.0), nn.Flatten(), nn.Linear(33 * 7, 5)]
    return nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 33), nn.LayerNorm(33), nn.GELU(), *head).to(device)
def train(device):
    model = parts(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = TensorDataset(torch.arange(280).reshape(40, 7) % 50, torch.arange(40) % 5)
    losses = []
    for tokens, labels in DataLoader(data, batch_size=8, num_workers=2, pin_memory=device == "neuron"):
        loss = nn.functional.cross_entropy(model(tokens.to(device, non_blocking=True)), labels.to(device, non_blocking=True))
        optimizer.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0); optimizer.step(); losses.append(loss.item())
    return model, losses
model, losses = train("neuron")
torch.testing.assert_close(losses, train("cpu")[1], rtol=1e-4, atol=1e-5)
file = io.BytesIO(); torch.save(model.state_dict(), file); file.seek(0)
copy = parts("neuron"); copy.load_state_dict(torch.load(file, map_location="neuron"))
assert all(torch.equal(a, b) for a, b in zip(copy.parameters(), model.parameters()))
def backward(results, index):
    x = torch.full((300, 300), float(index + 1), device="neuron", requires_grad=True)
    for _ in range(5): (x @ x).sum().backward()
    results[index] = x.grad[0, 0].item()
results = [0.0] * 4
threads = [threading.Thread(target=backward, args=(results, index)) for index in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert results == [5 * 600.0 * (index + 1) for index in range(4)], results
start, end = torch.Event("neuron", enable_timing=True), torch.Event("neuron", enable_timing=True)
start.record(); y = torch.ones(1000, 1000, device="neuron").sum(); end.record(); end.synchronize(); assert start.elapsed_time(end) >= 0
child = os.fork()
if child == 0: os._exit(0 if torch.ones(3).sum().item() == 3 else 1)
assert os.waitpid(child, 0)[1] == 0
z = torch.arange(12, device="neuron").reshape(3, 4); z.t()[1:].add_(1); z.resize_(5, 4); w = torch._lazy_clone(z); w.add_(1)
storage = z.untyped_storage(); storage.resize_(4096); storage.fill_(3); assert storage[5] == 3; z.set_(storage, 0, (2, 2), (2, 1))
print(z.tolist(), str(w[0, 0].item()), repr(z)[:6])
"""

GENERATION = """
import tempfile, transformers
torch.manual_seed(0)
sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
config = transformers.LlamaConfig(vocab_size=64, **sizes)
model = transformers.LlamaForCausalLM(config).eval()
tokens = torch.arange(6).unsqueeze(0)
options = dict(max_new_tokens=6, do_sample=False, pad_token_id=0)
expected = model.generate(tokens, **options)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folder, device_map="neuron").eval()
assert torch.equal(model.generate(tokens.to("neuron"), **options).cpu(), expected)
assert torch.equal(model.generate(tokens.to("neuron"), cache_implementation="static", **options).cpu(), expected)
model.forward = torch.compile(model.forward, backend="neuron", dynamic=False)
assert torch.equal(model.generate(tokens.to("neuron"), cache_implementation="static", **options).cpu(), expected)
print("same")
"""


class TestOrdinaryPrograms:
    def test_training_loading_threads_events_fork(self, guarded: RunPython) -> None:
        assert guarded(TRAINING, timeout=400).stdout.splitlines()[-1].startswith("[[")

    def test_generation_and_compile(self, guarded: RunPython) -> None:
        assert guarded(GENERATION, timeout=600).stdout.strip().endswith("same")
