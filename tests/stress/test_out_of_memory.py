"""Out of memory in the middle of something: the right error, all memory of the attempt comes back, a smaller attempt works."""

from __future__ import annotations

import textwrap

import pytest

from .helpers import forked

SMALL = {"SOFTNEURON_HBM_BYTES": "64M"}

# Every case defines `fits()`, which must succeed before and after, and `too_much()`, which must run out of memory in the middle.
PRELUDE = """
import gc, json, sys, torch
from stress.helpers import assert_books_balance
MIB = 1 << 20
"""
CHECK = """
fits()
gc.collect()
before = torch.neuron.memory_allocated()
for _ in range(3):
    try:
        too_much()
        raise SystemExit("there was memory for everything")
    except torch.OutOfMemoryError as error:
        message = str(error)
    gc.collect()
    assert torch.neuron.memory_allocated() == before, (torch.neuron.memory_allocated(), before)
    assert "neuron:0" in message and "64" in message, message
fits()
gc.collect()
assert torch.neuron.memory_allocated() == before, (torch.neuron.memory_allocated(), before)
assert torch.neuron.memory_stats()["num_ooms"] >= 3
assert_books_balance()
print("balanced")
"""

CASES = {
    # Forward holds three tensors of 12 MiB; the formula of the first gradient needs three more.
    "backward": """
    entered = []
    def step(size):
        x = torch.ones(size, device="neuron", requires_grad=True)
        loss = x.sin().cos().sum()
        entered.append(size)
        loss.backward()
    def fits(): step(MIB)
    def too_much():
        entered.clear()
        try: step(3 * MIB)
        finally: assert entered, "it should fail in backward, not before"
    """,
    # The hook of the first parameter's gradient fills the device, so that the next gradient has no room.
    "hook in backward": """
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).to("neuron")
    hoard = []
    def step(size):
        fill = lambda g: hoard.extend(torch.empty(MIB, dtype=torch.uint8, device="neuron") for _ in range(size))
        handle = model[3].weight.register_hook(fill)
        try: model(torch.ones(8, 512, device="neuron")).sum().backward()
        finally:
            handle.remove(); hoard.clear(); model.zero_grad()
    def fits(): step(1)
    def too_much(): step(100)
    """,
    "double backward": """
    x = torch.ones(MIB, device="neuron", requires_grad=True)
    def step(depth):
        y = x
        for _ in range(depth): y = y.sin()
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        torch.autograd.grad(slope.square().sum(), x)
    def fits(): step(1)
    def too_much(): step(6)
    """,
    # 1-byte states would fit; AdamW's two float32 moments of 24 MiB do not, beside weights and gradients.
    "optimizer step": """
    def make(size):
        p = torch.nn.Parameter(torch.ones(size * MIB // 4, device="neuron"))
        p.grad = torch.ones_like(p)
        return torch.optim.AdamW([p])
    def fits(): make(4).step()
    def too_much(): make(20).step()
    """,
    "fused optimizer step": """
    def make(size):
        p = torch.nn.Parameter(torch.ones(size * MIB // 4, device="neuron"))
        p.grad = torch.ones_like(p)
        return torch.optim.AdamW([p], fused=True)
    def fits(): make(4).step()
    def too_much(): make(20).step()
    """,
    "foreach list": """
    def add(count):
        return torch._foreach_add([torch.ones(MIB, dtype=torch.uint8, device="neuron") for _ in range(count)], 1)
    def fits(): add(8)
    def too_much(): add(40)
    """,
    "compiled program": """
    @torch.compile(backend="neuron")
    def f(x):
        y = x.sin(); z = y.cos()
        return y, z, (y * z).exp(), torch.cat([y, z])
    def fits(): f(torch.ones(MIB, device="neuron"))
    def too_much(): f(torch.ones(4 * MIB, device="neuron"))
    """,
    "compiled backward": """
    @torch.compile(backend="neuron")
    def f(x):
        for _ in range(5): x = x.sin() * x
        return x.sum()
    def step(size):
        x = torch.ones(size, device="neuron", requires_grad=True)
        f(x).backward()
    def fits(): step(MIB // 4)
    def too_much(): step(10 * MIB)  # fits by itself, its gradient beside it does not
    """,
    "checkpoint load": """
    import io, os, tempfile
    def saved(count):
        buffer = io.BytesIO(); torch.save({str(i): torch.ones(MIB) for i in range(count)}, buffer); buffer.seek(0); return buffer
    small, large = saved(3), saved(20)
    def fits(): small.seek(0); torch.load(small, map_location="neuron")
    def too_much(): large.seek(0); torch.load(large, map_location="neuron")
    """,
    "safetensors load": """
    import tempfile
    from safetensors import safe_open
    from safetensors.torch import save_file
    def load(path):
        with safe_open(path, framework="pt") as file: return [file.get_tensor(name).to("neuron") for name in file.keys()]
    folder = tempfile.mkdtemp()
    for name, count in (("small", 3), ("large", 20)): save_file({str(i): torch.ones(MIB) for i in range(count)}, f"{folder}/{name}")
    def fits(): load(f"{folder}/small")
    def too_much(): load(f"{folder}/large")
    """,
    "module to the device": """
    def move(layers): torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(layers)]).to("neuron")
    def fits(): move(3)
    def too_much(): move(20)
    """,
    "resize and out": """
    y = torch.empty(0, device="neuron")
    def add(size): torch.add(torch.ones(size, device="neuron"), 1, out=y)
    def fits(): add(MIB); y.resize_(0); y.untyped_storage().resize_(0)
    def too_much():
        try: add(9 * MIB)
        finally: y.resize_(0); y.untyped_storage().resize_(0)
    """,
    "activation checkpointing": """
    from torch.utils.checkpoint import checkpoint
    def block(x):
        for _ in range(6): x = x.sin() * 1.5
        return x
    def step(size):
        x = torch.ones(size, device="neuron", requires_grad=True)
        checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False).sum().backward()
    def fits(): step(MIB)
    def too_much(): step(2 * MIB)
    """,
    "reentrant checkpointing": """
    from torch.utils.checkpoint import checkpoint
    def block(x):
        for _ in range(6): x = x.sin() * 1.5
        return x
    def step(size):
        x = torch.ones(size, device="neuron", requires_grad=True)
        checkpoint(block, x, use_reentrant=True).sum().backward()
    def fits(): step(MIB)
    def too_much(): step(2 * MIB)
    """,
    "sort, topk and temporaries of kernels": """
    x = torch.rand(2 * MIB, device="neuron")
    def fits(): x[:1000].sort()
    def too_much(): hoard = torch.empty(30 * MIB, dtype=torch.uint8, device="neuron"); x.sort(stable=True)
    """,
    "thread": """
    from stress.helpers import in_threads
    def fits(): in_threads(4, lambda i: torch.ones(MIB, device="neuron").sum().item())
    def too_much(): in_threads(4, lambda i: [torch.ones(MIB, device="neuron") for _ in range(20)])
    """,
    "multi-core copy": """
    source = torch.ones(12 * MIB, device="neuron:1")
    def fits(): source[:MIB].to("neuron:0")
    def too_much(): kept = source.to("neuron:0"); source.to("neuron:0")
    """,
}
QUICK = {"backward", "compiled backward", "optimizer step", "checkpoint load"}


@pytest.mark.parametrize("case", [name if name in QUICK else pytest.param(name, marks=pytest.mark.extra) for name in CASES])
def test_in_the_middle_of(case: str) -> None:
    assert forked(PRELUDE + textwrap.dedent(CASES[case]) + CHECK, **SMALL) == "balanced"


@pytest.mark.extra
def test_error_kept_by_the_user_keeps_only_its_own_frames() -> None:
    """The exception's traceback holds the tensors of its frames, as in Python at large: once it is dropped, everything is back."""
    out = forked(
        """
        import gc, torch
        def work():
            mine = torch.ones(1 << 20, device="neuron")
            return torch.empty(1 << 40, dtype=torch.uint8, device="neuron"), mine
        try: work()
        except torch.OutOfMemoryError as error: kept = error
        held = torch.neuron.memory_allocated()
        del kept; gc.collect()
        print(held > 0, torch.neuron.memory_allocated())
        """,
        **SMALL,
    )
    assert out == "True 0"


@pytest.mark.extra
def test_generate_until_the_cache_does_not_fit() -> None:
    """A text that grows until its key-value cache does not fit; a shorter one is generated afterwards, and nothing is left of the first."""
    out = forked(
        """
        import gc, torch
        from transformers import LlamaConfig, LlamaForCausalLM
        sizes = dict(vocab_size=64, hidden_size=256, intermediate_size=64, num_hidden_layers=4, num_attention_heads=8)
        model = LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=None, max_position_embeddings=4096))
        model = model.to("neuron").eval()
        gc.collect(); before = torch.neuron.memory_allocated()
        prompt = torch.ones(64, 64, dtype=torch.int64, device="neuron")
        gc.collect(); held = torch.neuron.memory_allocated()
        try: model.generate(prompt, max_new_tokens=2000, do_sample=False); print("no error")
        except torch.OutOfMemoryError: print("out of memory")
        gc.collect()
        print(torch.neuron.memory_allocated() == held, model.generate(prompt[:1], max_new_tokens=8, do_sample=False).shape[1])
        """,
        **SMALL,
    )
    assert out.splitlines() == ["out of memory", "True 72"]
