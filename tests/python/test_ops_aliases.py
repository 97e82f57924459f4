"""Aliases of arguments: storages that a kernel grows, and aliases that a kernel keeps beyond its call."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def kept() -> Iterator[list[torch.Tensor]]:
    """What the CPU kernels of `aliases::keep` and `aliases::grow` keep of their arguments."""
    kernels: list[torch.Tensor] = []
    library = torch.library.Library("aliases", "FRAGMENT")
    library.define("keep(Tensor(a!) first, Tensor(b!) second) -> ()")
    library.define("grow(Tensor(a!) out) -> ()")
    library.impl("keep", lambda first, second: kernels.extend([first, second]), "CPU")
    library.impl("grow", lambda out: kernels.append(out.resize_(1000).fill_(2)), "CPU")
    yield kernels
    library._destroy()


def test_two_results_that_grow_into_one_storage() -> None:
    values = torch.arange(4000.0).view(4, 1000)
    outs = {}
    for device in ("cpu", "neuron"):
        base = torch.zeros(1, device=device)
        low, high = base[:0], base[:0]
        torch.aminmax(values.to(device), dim=0, out=(low, high))
        assert low.data_ptr() == high.data_ptr() == base.data_ptr()
        outs[device] = [low.cpu(), high.cpu(), torch.tensor(base.untyped_storage().nbytes())]
    for ours, theirs in zip(outs["neuron"], outs["cpu"], strict=True):
        assert torch.equal(ours, theirs)


def test_a_kernel_may_keep_an_argument_that_it_grew(kept: list[torch.Tensor]) -> None:
    out = torch.empty(0, device="neuron")
    torch.ops.aliases.grow(out)
    assert out.shape == (1000,) and out.sum().item() == 2000
    assert kept[0].data_ptr() == out.data_ptr()
    out.add_(1)
    assert kept[0].sum().item() == 3000
    del out
    assert kept[0].sum().item() == 3000, "the bytes live as long as the kernel's tensor"


@pytest.mark.parametrize("overlapping", [True, False])
def test_a_kernel_may_keep_its_arguments(kept: list[torch.Tensor], overlapping: bool) -> None:
    base = torch.arange(8.0, device="neuron")
    first, second = base[:6], base[2:] if overlapping else torch.arange(8.0, device="neuron")[2:]
    torch.ops.aliases.keep(first, second)
    base.mul_(10)
    before = torch.neuron.memory_allocated()
    del base, first, second
    torch.ones(8, device="neuron").sum()  # the pool's slots are used again
    assert torch.neuron.memory_allocated() == before
    assert kept[0].tolist() == [0, 10, 20, 30, 40, 50]
    assert kept[1].tolist() == ([20, 30, 40, 50, 60, 70] if overlapping else [2, 3, 4, 5, 6, 7])
    kept.clear()
    assert torch.neuron.memory_allocated() < before
