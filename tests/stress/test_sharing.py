"""Device tensors and other processes: one clear error whatever way they are sent, and host tensors as the way that works."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp

from . import children

pytestmark = pytest.mark.usefixtures("nothing_lost")

REFUSED = "only available on CPU"
TIMEOUT = 120


def device_tensor() -> torch.Tensor:
    return torch.arange(6.0, device="neuron")


WAYS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: ForkingPickler.dumps(device_tensor()),
    "view": lambda: ForkingPickler.dumps(device_tensor()[1::2]),
    "tensor of another core": lambda: ForkingPickler.dumps(device_tensor().to("neuron:3")),
    "leaf": lambda: ForkingPickler.dumps(device_tensor().requires_grad_()),
    "parameter": lambda: ForkingPickler.dumps(torch.nn.Parameter(device_tensor())),
    "module": lambda: ForkingPickler.dumps(torch.nn.Linear(3, 2, device="neuron")),
    "storage": lambda: ForkingPickler.dumps(device_tensor().untyped_storage()),
    "nested in objects": lambda: ForkingPickler.dumps({"list": [1, (device_tensor(),)]}),
    "after share_memory_": lambda: ForkingPickler.dumps(device_tensor().share_memory_()),
    "module after share_memory": lambda: ForkingPickler.dumps(torch.nn.Linear(3, 2, device="neuron").share_memory()),
    "simple queue": lambda: mp.get_context("spawn").SimpleQueue().put(device_tensor()),
    "pipe": lambda: mp.get_context("spawn").Pipe()[0].send(device_tensor()),
    "arguments of a spawned process": lambda: mp.get_context("spawn").Process(target=len, args=(device_tensor(),)).start(),
    "mp.spawn": lambda: mp.spawn(len, args=(device_tensor(),), nprocs=1),
}


@pytest.mark.parametrize("way", WAYS)
def test_sending_is_refused(way: str) -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        WAYS[way]()


@pytest.mark.parametrize("strategy", sorted(mp.get_all_sharing_strategies()))
def test_sending_is_refused_with_every_strategy(strategy: str) -> None:
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(strategy)
    try:
        with pytest.raises(RuntimeError, match=REFUSED):
            ForkingPickler.dumps(device_tensor())
    finally:
        mp.set_sharing_strategy(before)


def test_results_with_a_graph_are_refused_as_on_the_cpu() -> None:
    errors = []
    for device in ("cpu", "neuron"):
        with pytest.raises(RuntimeError) as caught:
            ForkingPickler.dumps(torch.ones(2, device=device, requires_grad=True) * 2)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_share_memory_changes_nothing() -> None:
    """As for other devices: a no-op, so that code which calls it for every model goes on."""
    x = device_tensor()
    address = x.data_ptr()
    assert x.share_memory_() is x
    assert x.is_shared()
    assert x.data_ptr() == address
    assert x.sum().item() == 15


def test_ordinary_pickle_copies() -> None:
    x = torch.randn(5, 4, device="neuron:2").t()
    y = pickle.loads(pickle.dumps(x))
    assert y.device == x.device
    assert y.stride() == x.stride()
    assert torch.equal(y, x)
    assert y.data_ptr() != x.data_ptr()


def answers_of(method: str, target: Callable[..., None], count: int, *arguments: Any) -> list[Any]:
    """Runs a function of `children` in a process and collects `count` answers; the process must end with 0."""
    context = mp.get_context(method)
    answers = context.SimpleQueue()
    process = context.Process(target=target, args=(answers, *arguments))
    process.start()
    try:
        found = [answers.get() for _ in range(count)]
        process.join(TIMEOUT)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
    return found


@pytest.mark.extra
def test_sending_from_a_spawned_child_is_refused() -> None:
    first, second, third = answers_of("spawn", children.send_device_tensor, 3)
    assert REFUSED in first
    assert REFUSED in second
    assert third == [2.0, 2.0, 2.0]


def test_forked_child_gets_the_fork_error() -> None:
    """The parent has used the device: in the child every use names `spawn`, sending is refused, and the host works."""
    kept = device_tensor()
    made, sent, used, host = answers_of("fork", children.use_device, 4, kept)
    assert "'spawn' start method" in made
    assert REFUSED in sent
    assert "'spawn' start method" in used
    assert host == [2.0, 2.0, 2.0]
    assert kept.sum().item() == 15


def test_forked_child_may_not_use_inherited_bytes() -> None:
    """The child has a private copy of the bytes: writing to it as if it were the parent's tensor must not go unnoticed."""
    answers = answers_of("fork", children.use_inherited, len(children.INHERITED_USES), device_tensor())
    assert [name for name, answer in zip(children.INHERITED_USES, answers, strict=True) if "'spawn' start method" not in answer] == []


@pytest.mark.extra
def test_forked_children_do_not_disturb_the_parent() -> None:
    """Twenty children, forked while the parent computes, that fail on the device and exit: the parent's numbers stay right."""
    kept = device_tensor()
    for _ in range(20):
        assert "'spawn' start method" in answers_of("fork", children.use_device, 2)[0]
        assert (kept * 2).sum().item() == 30


def test_host_tensors_travel() -> None:
    """The way that works: host tensors through queues, the device on both sides."""
    context = mp.get_context("spawn")
    tensors, answers = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=children.double_on_device, args=(tensors, answers))
    process.start()
    try:
        for step in range(5):
            x = torch.randn(1000, generator=torch.Generator().manual_seed(step)).to("neuron")
            tensors.put(x.cpu())
            assert torch.equal(answers.get().to("neuron"), x * 2)
        tensors.put(None)
        process.join(TIMEOUT)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


@pytest.mark.extra
def test_shared_host_memory_is_read_by_the_device() -> None:
    """A child writes into shared host memory from its device; the parent copies it to its own."""
    shared = torch.zeros(5000).share_memory_()
    process = mp.get_context("spawn").Process(target=children.write_through_shared_memory, args=(shared, 7.0))
    process.start()
    process.join(TIMEOUT)
    assert process.exitcode == 0
    assert torch.equal(shared.to("neuron"), torch.arange(5000, device="neuron") + 7)


@pytest.mark.extra
def test_plain_multiprocessing_copies_device_tensors_nowhere() -> None:
    """Pools of the standard library pickle as torch.multiprocessing does, as torch registers its types with it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(RuntimeError, match=REFUSED):
        pool.map(len, [device_tensor()])
