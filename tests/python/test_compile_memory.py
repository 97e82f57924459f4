"""What a compiled graph leaves in memory: caches written in place, buffers reused, nothing kept after errors."""

import gc
import threading
from typing import Any

import pytest
import torch
from compile_helpers import (
    DEVICE,
    assert_same,
    compile_neuron,
    fresh_compiler,  # noqa: F401 (an autouse fixture)
    graph_count,
)


def allocated() -> int:
    gc.collect()
    return torch.neuron.memory_allocated()


class CacheLayer:
    """A static key-value cache as transformers keeps it: index_copy_ at a position that lives on the device."""

    def __init__(self, length: int = 256) -> None:
        self.keys = torch.zeros(2, 4, length, 64, device=DEVICE)
        self.values = torch.zeros_like(self.keys)
        self.seen = torch.zeros((), dtype=torch.int64, device=DEVICE)

    def update(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        position = torch.arange(keys.shape[2], device=keys.device) + self.seen
        self.seen.add_(keys.shape[2])
        self.keys.index_copy_(2, position, keys)
        self.values.index_copy_(2, position, values)
        return self.keys, self.values


def decode(cache: CacheLayer, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, *cache.update(keys, values))


def written_subscript(cache: CacheLayer, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    cache.keys[:, :, 5:6] = keys
    cache.values[:, :, cache.seen + torch.arange(1, device=DEVICE)] = values
    cache.keys[1][:, 7:8].copy_(keys[0])
    return torch.nn.functional.scaled_dot_product_attention(query, cache.keys, cache.values)


@pytest.mark.parametrize("step", [decode, written_subscript])
@torch.no_grad()
def test_a_static_cache_is_written_in_place_and_never_copied(step: Any) -> None:
    compiled, cache, reference = compile_neuron(step), CacheLayer(), CacheLayer()
    for tensor in (cache.keys, cache.values, cache.seen):
        torch._dynamo.mark_static_address(tensor)
    pointers = cache.keys.data_ptr(), cache.values.data_ptr(), cache.seen.data_ptr()
    generator = torch.Generator().manual_seed(0)
    for index in range(4):
        query, keys, values = (torch.randn(2, 4, 1, 64, generator=generator).to(DEVICE) for _ in range(3))
        before = allocated()
        torch.neuron.reset_peak_memory_stats()
        result = compiled(cache, query, keys, values)
        if index > 0:
            assert torch.neuron.max_memory_allocated() - before < cache.keys.nbytes // 2, "no copy of the cache was made"
        assert_same(result, step(reference, query, keys, values))
        assert_same((cache.keys, cache.values, cache.seen), (reference.keys, reference.values, reference.seen))
    assert pointers == (cache.keys.data_ptr(), cache.values.data_ptr(), cache.seen.data_ptr())
    assert graph_count() == 1


# Rows written by index: what the program does itself, and what it leaves to the operator (rows in pieces, complex numbers).
INDEXED = {
    "middle": ((2, 3, 8, 4), 2, [5, 0], lambda x: x),
    "last place wins": ((6, 4), 0, [1, 4, 1], lambda x: x),
    "negative dimension": ((2, 8, 4), -2, [7], lambda x: x),
    "transposed source": ((2, 3, 8, 4), 2, [6, 1], lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)),
    "repeated source": ((2, 3, 8, 4), 2, [3], lambda x: x[:1].expand(2, 3, 1, 4)),
    "last dimension": ((3, 8), 1, [2, 7], lambda x: x),
    "rows in pieces": ((3, 8, 4), 1, [2], lambda x: x.transpose(0, 2).contiguous().transpose(0, 2)),
    "no places": ((4, 3), 0, [], lambda x: x),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.bool, torch.complex64])
@torch.no_grad()
def test_rows_written_by_index(name: str, dtype: torch.dtype) -> None:
    sizes, dim, places, arrange = INDEXED[name]

    def function(target: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        target.index_copy_(dim, index, source)
        return target + target

    generator = torch.Generator().manual_seed(0)
    start = torch.randint(0, 2, sizes, generator=generator).to(dtype)
    rows = list(sizes)
    rows[dim] = len(places)
    source = arrange(torch.randint(0, 2, rows, generator=generator).to(dtype).to(DEVICE))
    index = torch.tensor(places, dtype=torch.int64, device=DEVICE)
    compiled, targets = compile_neuron(function), [start.to(DEVICE) for _ in range(2)]
    assert_same(compiled(targets[0], index, source), function(targets[1], index, source))
    assert_same(targets[0], targets[1])


@torch.no_grad()
def test_rows_written_by_index_where_they_cannot_be() -> None:
    def function(target: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> None:
        target.index_copy_(0, index, source)

    compiled = compile_neuron(function)
    target, source = torch.zeros(4, 3, device=DEVICE), torch.ones(1, 3, device=DEVICE)
    for place in (4, -1):
        index = torch.tensor([place], device=DEVICE)
        with pytest.raises(IndexError) as eager:
            function(target, index, source)
        with pytest.raises(IndexError, match=str(eager.value).splitlines()[0].replace("(", r"\(").replace(")", r"\)")):
            compiled(target, index, source)
        assert not target.any(), "nothing was written"


@torch.no_grad()
def test_rows_written_by_index_from_the_target_itself() -> None:
    def function(target: torch.Tensor, index: torch.Tensor) -> None:
        target.index_copy_(0, index, target[2:3])

    # Eager refuses it; in a graph without mutation the source is a value of its own.
    target = torch.arange(12.0).reshape(4, 3).to(DEVICE)
    expected = target.clone()
    expected[0] = expected[2]
    compile_neuron(function)(target, torch.tensor([0], device=DEVICE))
    assert_same(target, expected)


@torch.no_grad()
def test_the_old_value_of_a_cache_may_still_be_read() -> None:
    def function(cache: torch.Tensor, x: torch.Tensor, index: torch.Tensor) -> Any:
        row = cache[0]
        cache.index_copy_(0, index, x)
        return row * 1, cache.sum(), cache[1:] + cache[:-1]

    x, index = torch.ones(1, 3, device=DEVICE), torch.tensor([0], device=DEVICE)
    caches = [torch.zeros(4, 3, device=DEVICE) for _ in range(2)]
    assert_same(compile_neuron(function)(caches[0], x, index), function(caches[1], x, index))
    assert_same(caches[0], caches[1])


@torch.no_grad()
def test_overlapping_source_and_target() -> None:
    def function(x: torch.Tensor) -> None:
        x[1:] = x[:-1].clone()
        x[:, 0] = x[:, 1]
        x[0].add_(x[1])

    tensors = [torch.arange(12.0).reshape(4, 3).to(DEVICE) for _ in range(2)]
    compile_neuron(function)(tensors[0])
    function(tensors[1])
    assert_same(tensors[0], tensors[1])


@torch.no_grad()
def test_dead_buffers_are_reused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = torch.sin(x * 2)
        return x

    x = torch.zeros(1 << 18, device=DEVICE)
    compiled = compile_neuron(function)
    compiled(x)
    before = allocated()
    torch.neuron.reset_peak_memory_stats()
    compiled(x)
    assert torch.neuron.max_memory_allocated() - before <= 2 * x.nbytes


@torch.no_grad()
def test_inputs_die_inside_the_call() -> None:
    """AOTAutograd hands over the last reference to saved activations: a program drops each after its last use."""
    from torch_neuronx._C import ProgramBuilder, Value

    builder = ProgramBuilder("consume")
    kind = (torch.float32, [1 << 18], [1], DEVICE)
    x = builder.add_input(kind)
    (y,) = builder.add_call("aten::neg", (Value(x),), {}, [kind])
    (z,) = builder.add_call("aten::sum", (Value(y),), {}, [(torch.float32, [], [], DEVICE)])
    builder.set_outputs([Value(z)])
    graph = builder.finish()
    before = allocated()
    arguments = [torch.ones(1 << 18, device=DEVICE)]
    (result,) = graph(arguments)
    assert arguments == []
    assert result.item() == -(1 << 18)
    del result
    assert allocated() == before


@torch.no_grad()
def test_an_error_in_the_middle_leaves_nothing_behind() -> None:
    def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        big = torch.cat([x, x])
        return (big * 2)[index] + big.sum()

    compiled = compile_neuron(function)
    x, good, bad = torch.ones(1 << 18, device=DEVICE), torch.tensor([1], device=DEVICE), torch.tensor([1 << 30], device=DEVICE)
    expected = compiled(x, good)
    before = allocated()
    for _ in range(3):
        with pytest.raises(IndexError, match=r"out of (bounds|range)"):
            compiled(x, bad)
    assert allocated() == before
    assert_same(compiled(x, good), expected)


@torch.no_grad()
def test_errors_name_the_instruction() -> None:
    compiled = compile_neuron(lambda x, index: (x * 2)[index])
    x = torch.ones(4, device=DEVICE)
    compiled(x, torch.tensor([1], device=DEVICE))
    with pytest.raises(IndexError, match=r"while executing %\d+ = aten::index.Tensor\(.*instruction 2 of 2 in graph model_"):
        compiled(x, torch.tensor([9], device=DEVICE))


@torch.no_grad()
def test_out_of_memory_inside_a_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.expand(1 << 20, 1 << 20)]).sum()

    x = torch.ones(1, device=DEVICE)
    before = allocated()
    with pytest.raises(torch.OutOfMemoryError):
        compile_neuron(function)(x)
    assert allocated() == before
    assert_same(compile_neuron(lambda t: t + 1)(x), x + 1)


@torch.no_grad()
def test_errors_of_python_steps_reach_the_caller() -> None:
    @torch.library.custom_op("softneuron_tests::fail", mutates_args=())
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("from a custom operator")

    @fail.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    before = allocated()
    with pytest.raises(KeyError, match="from a custom operator"):
        compile_neuron(lambda x: fail(x * 2) + 1)(torch.ones(3, device=DEVICE))
    assert allocated() == before


@torch.no_grad()
def test_two_threads_run_one_program() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            x = torch.sin(x) @ x
        return x

    compiled = compile_neuron(function)
    inputs = [torch.randn(16, 16, generator=torch.Generator().manual_seed(i)).to(DEVICE) * 0.1 for i in range(4)]
    expected = [compiled(x) for x in inputs]
    failures: list[BaseException] = []
    intra_op = torch.get_num_threads()

    def work(index: int) -> None:
        try:
            torch.set_num_threads(intra_op)  # a thread's own number, of which Dynamo's guards take note
            for _ in range(50):
                assert_same(compiled(inputs[index]), expected[index])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=torch.no_grad()(work), args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert graph_count() == 1


@torch.no_grad()
def test_a_program_is_freed_with_its_function() -> None:
    before = allocated()

    def add_large() -> None:
        large = torch.ones(1 << 20, device=DEVICE)
        compile_neuron(lambda x: x + large)(torch.ones(1, device=DEVICE))

    add_large()
    torch._dynamo.reset()
    from torch_neuronx import _C

    _C.clear_compile_cache()
    assert allocated() == before
