"""Slips that planted faults showed other tests to miss: operands over one storage, offsets, last rows, work split over threads."""

import threading
from collections.abc import Iterator

import pytest
import torch

DEVICE = "neuron:0"


@pytest.fixture
def threads() -> Iterator[int]:
    """Enough threads to split work, also where the environment asks for one."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield 4
    torch.set_num_threads(before)


def test_operands_that_are_views_of_one_tensor() -> None:
    host = torch.arange(24.0).sin().view(4, 6)
    device = host.to(DEVICE)
    for call in (
        lambda t: torch.maximum(t[0], t[2]),
        lambda t: torch.mm(t[:2, :3], t[1:, 2:5]),
        lambda t: torch.where(t[1] > 0, t[2], t[3]),
        lambda t: torch.stack([t[3], t[1], t[0, :6]]),
        lambda t: torch.cat([t[2:, 1:3], t[1:3, 3:]], 1),
        lambda t: torch.sub(t[0], t[1], out=t[3]),
        lambda t: t[:, 1].clone().addcmul_(t[:, 2], t[:, 4]),
    ):
        torch.testing.assert_close(call(device).cpu(), call(host))
    torch.testing.assert_close(device.cpu(), host)


def test_set_to_a_view_takes_its_offset() -> None:
    base = torch.arange(10.0, device=DEVICE)
    view = torch.empty(0, device=DEVICE).set_(base[4:9:2])
    assert view.storage_offset() == 4
    assert view.tolist() == [4, 6, 8]


def test_as_strided_without_an_offset_keeps_that_of_its_base() -> None:
    base = torch.arange(10.0, device=DEVICE)[3:]
    assert base.as_strided((2, 2), (3, 1)).tolist() == [[3, 4], [6, 7]]
    assert base.as_strided((2, 2), (3, 1), 0).tolist() == [[0, 1], [3, 4]]


@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_every_row_can_be_selected(index_type: torch.dtype) -> None:
    host = torch.arange(15).view(5, 3)
    rows = torch.tensor([4, 0, 3, 1, 2, 4], dtype=index_type)
    assert torch.equal(host.to(DEVICE).index_select(0, rows.to(DEVICE)).cpu(), host.index_select(0, rows))
    for outside in (5, -1):
        with pytest.raises(IndexError):
            host.to(DEVICE).index_select(0, torch.tensor([outside], dtype=index_type, device=DEVICE))


@pytest.mark.parametrize("size", [(1 << 20) + 1, (1 << 21) - 1, 3_000_003])
def test_large_copies_are_whole(size: int, threads: int) -> None:
    host = torch.randint(0, 256, (size,), dtype=torch.uint8)
    device = host.to(DEVICE)
    assert torch.equal(device.clone().cpu(), host)
    assert torch.equal(torch.zeros_like(host).copy_(device), host)


def test_large_operators_on_several_threads(threads: int) -> None:
    a, b = torch.randn(300_007), torch.randn(300_007)
    x, y = a.to(DEVICE), b.to(DEVICE)
    for call in (torch.add, torch.mul, lambda p, q: p.clone().add_(q), lambda p, q: p.clone().mul_(q), lambda p, q: p.clone().zero_()):
        assert torch.equal(call(x, y).cpu(), call(a, b))
    table, rows = torch.randn(700, 300), torch.randint(0, 700, (2000,))
    assert torch.equal(table.to(DEVICE).index_select(0, rows.to(DEVICE)).cpu(), table.index_select(0, rows))


def test_the_last_draw_without_replacement_has_its_probability() -> None:
    torch.manual_seed(0)
    p = torch.tensor([1.0, 2.0, 1.0, 4.0], device=DEVICE)
    drawn = torch.multinomial(p.expand(40_000, 4), 2).cpu()
    # P(second = k) = sum over first categories j of p_j * p_k / (1 - p_j).
    q = (p / p.sum()).cpu().double()
    expected = torch.stack([sum(q[j] * q[k] / (1 - q[j]) for j in range(4) if j != k) for k in range(4)])
    found = torch.bincount(drawn[:, 1], minlength=4).double() / len(drawn)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01)


def fill(out: torch.Tensor, size: int) -> None:
    """The CPU kernel of an operator that resizes its argument."""
    out.resize_(size).fill_(size)


def test_foreign_operators_may_write_grow_and_view_their_arguments() -> None:
    with torch.library._scoped_library("neuron_test_holes", "FRAGMENT") as library:
        library.define("fill(Tensor(a!) out, int size) -> ()")
        library.define("tail(Tensor(a) x) -> Tensor(a)")
        library.impl("fill", fill, "CPU")
        library.impl("tail", lambda x: x[1:], "CPU")
        out = torch.empty(0, device=DEVICE)
        torch.ops.neuron_test_holes.fill(out, 1)
        assert out.tolist() == [1]
        torch.ops.neuron_test_holes.fill(out, 1000)
        assert out.shape == (1000,)
        assert out.untyped_storage().nbytes() == 4000
        x = torch.arange(4.0, device=DEVICE)
        with torch.no_grad():
            tail = torch.ops.neuron_test_holes.tail(x)
        assert tail.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        tail.zero_()
        assert x.tolist() == [0, 0, 0, 0]


def test_a_new_thread_makes_tensors_where_the_main_thread_does() -> None:
    torch.neuron.set_device(2)
    found: list[torch.device] = []
    worker = threading.Thread(target=lambda: found.append(torch.empty(1, device="neuron").device))
    worker.start()
    worker.join()
    assert found == [torch.device("neuron:2")]
