"""Autograd from several threads at once: shared leaves, hooks, double backward, several cores, errors; all gradients as from one thread."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from .helpers import CORES, in_threads

pytestmark = pytest.mark.usefixtures("nothing_lost")

THREADS = 8
STEPS = 25


def network(device: str, seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 4)).double().to(device)


def batch(index: int, step: int) -> torch.Tensor:
    return torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1000 * index + step))


def reference(threads: int, steps: int) -> list[torch.Tensor]:
    """Gradients of the sum over all batches of all threads, computed on the host by one thread."""
    model = network("cpu")
    for index in range(threads):
        for step in range(steps):
            model(batch(index, step)).square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def assert_gradients(model: torch.nn.Module, expected: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient, rtol=1e-9, atol=1e-9)


def test_shared_leaves() -> None:
    """All threads accumulate into the same parameters: no addition may be lost."""
    model = network("neuron")

    def work(index: int) -> None:
        for step in range(STEPS):
            model(batch(index, step).to("neuron")).square().sum().backward()

    in_threads(THREADS, work)
    assert_gradients(model, reference(THREADS, STEPS))


def test_shared_leaves_from_graphs_on_all_cores() -> None:
    """The parameters live on core 0, the work is done on another core by every thread: gradients come back through copies."""
    model = network("neuron:0")
    first, last = model[0], model[2]

    def work(index: int) -> None:
        core = f"neuron:{index % CORES}"
        for step in range(STEPS):
            x = batch(index, step).to(core)
            hidden = torch.nn.functional.linear(x, first.weight.to(core), first.bias.to(core)).tanh()
            torch.nn.functional.linear(hidden, last.weight.to(core), last.bias.to(core)).square().sum().backward()

    in_threads(THREADS, work)
    assert_gradients(model, reference(THREADS, STEPS))


def test_hooks_run_for_their_own_backward() -> None:
    """Tensor, post-accumulate and module hooks run once for every backward, and may compute on the device."""
    model = network("neuron")
    counts, lock = dict.fromkeys(("tensor", "accumulated", "module"), 0), threading.Lock()

    def count(kind: str) -> None:
        with lock:
            counts[kind] += 1

    def on_gradient(gradient: torch.Tensor) -> torch.Tensor:
        count("tensor")
        return gradient * 2

    handles = [
        model[0].weight.register_hook(on_gradient),
        model[2].weight.register_post_accumulate_grad_hook(lambda _: count("accumulated")),
        model[2].register_full_backward_hook(lambda *_: count("module")),
    ]

    def work(index: int) -> None:
        for step in range(STEPS):
            model(batch(index, step).to("neuron")).square().sum().backward()

    in_threads(THREADS, work)
    for handle in handles:
        handle.remove()
    assert counts == dict.fromkeys(counts, THREADS * STEPS)
    expected = reference(THREADS, STEPS)
    expected[0] = expected[0] * 2
    assert_gradients(model, expected)


def test_backward_inside_a_hook() -> None:
    """A hook that runs a backward of its own (reentrant) while other threads do the same."""
    results: list[float] = [0.0] * THREADS

    def work(index: int) -> None:
        x = torch.ones(4, device=f"neuron:{index % CORES}", requires_grad=True)
        inner = torch.full((3,), float(index), device=f"neuron:{(index + 1) % CORES}", requires_grad=True)

        def hook(gradient: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                (inner * inner).sum().backward()
            return gradient + inner.grad.sum().to(gradient.device)

        y = x * 3
        y.register_hook(hook)
        y.sum().backward()
        results[index] = x.grad.sum().item()

    in_threads(THREADS, work)
    assert results == [4 * 3 * (1 + 3 * 2 * index) for index in range(THREADS)]


def test_double_backward() -> None:
    """Gradients of gradients, as in a gradient penalty, and the Hessian, with dtypes and cores mixed."""

    def work(index: int) -> None:
        device = f"neuron:{index % CORES}"
        for step in range(5):
            x = batch(index, step)
            expected = torch.autograd.functional.hessian(lambda v: v.sin().prod() + v.pow(3).sum(), x[0, :4])
            on_device = x.to(device)
            actual = torch.autograd.functional.hessian(lambda v: v.sin().prod() + v.pow(3).sum(), on_device[0, :4])
            torch.testing.assert_close(actual.cpu(), expected)
            leaf = on_device.clone().requires_grad_()
            (slope,) = torch.autograd.grad(leaf.exp().sum(), leaf, create_graph=True)
            (slope.square().sum()).backward()
            torch.testing.assert_close(leaf.grad.cpu(), 2 * x.exp() * x.exp())

    in_threads(THREADS, work)


def test_one_graph_differentiated_by_many_threads() -> None:
    """`retain_graph` and the same graph from 8 threads: every thread gets all of the gradient."""
    x = torch.arange(1.0, 7.0, device="neuron", requires_grad=True)
    y = (x * x).exp().log().sum()
    gradients: list[torch.Tensor | None] = [None] * THREADS

    def work(index: int) -> None:
        for _ in range(STEPS):
            (gradients[index],) = torch.autograd.grad(y, x, retain_graph=True)

    in_threads(THREADS, work)
    for gradient in gradients:
        assert gradient is not None
        torch.testing.assert_close(gradient, 2 * x.detach())


def test_one_threads_error_is_its_own() -> None:
    """Half of the threads raise inside backward; they get their own error, and the others their gradients."""
    seen: list[str] = [""] * THREADS

    def work(index: int) -> None:
        for step in range(STEPS):
            x = torch.full((3,), float(step), device=f"neuron:{index % CORES}", requires_grad=True)
            y = x * 2
            if index % 2:
                y.register_hook(lambda _, step=step: 1 // 0 if step % 2 else (_ for _ in ()).throw(KeyError(index)))
                with pytest.raises((ZeroDivisionError, KeyError)) as caught:
                    y.sum().backward()
                seen[index] = str(caught.value)
                assert x.grad is None
            else:
                y.sum().backward()
                assert x.grad.tolist() == [2.0] * 3

    in_threads(THREADS, work)
    assert seen[1::2] == [str(index) for index in range(1, THREADS, 2)]


def test_checkpointing_and_saved_tensors_on_the_host() -> None:
    """Activation checkpointing (which runs forward again in the engine's thread) and `save_on_cpu`, several threads at once."""
    models = [network(f"neuron:{index % CORES}") for index in range(THREADS)]
    expected = {index: gradient(network("cpu"), index) for index in range(THREADS)}
    found: dict[int, torch.Tensor] = {}

    def work(index: int) -> None:
        found[index] = gradient(models[index], index).cpu()

    in_threads(THREADS, work)
    for index in range(THREADS):
        torch.testing.assert_close(found[index], expected[index])


def gradient(model: torch.nn.Module, index: int) -> torch.Tensor:
    x = batch(index, 0).to(model[0].weight.device).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = checkpoint(model, x, use_reentrant=bool(index % 2))
        y = y + checkpoint(model, x.tanh(), use_reentrant=False)
    y.square().sum().backward()
    return x.grad


def test_modes_are_each_threads_own() -> None:
    """no_grad, inference mode, autocast and anomaly detection in one thread do not reach another."""

    def work(index: int) -> None:
        x = torch.ones(4, 4, device="neuron", requires_grad=True)
        for _ in range(STEPS):
            kind = index % 4
            if kind == 0:
                with torch.no_grad():
                    assert not (x * 2).requires_grad
            elif kind == 1:
                with torch.inference_mode():
                    assert (x * 2).is_inference()
            elif kind == 2:
                with torch.autocast("neuron", dtype=torch.bfloat16):
                    assert (x @ x).dtype is torch.bfloat16
            else:
                y = x @ x
                assert y.requires_grad and not y.is_inference() and y.dtype is torch.float32

    in_threads(THREADS, work)


@pytest.mark.extra
def test_optimizers_in_threads() -> None:
    """Eight models trained in eight threads end where they end when trained one after the other."""

    def train(model: torch.nn.Module, index: int) -> list[torch.Tensor]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=bool(index % 2))
        for step in range(60):
            optimizer.zero_grad()
            model(batch(index, step).to(model[0].weight.device)).square().mean().backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    models = [network(f"neuron:{index % CORES}") for index in range(THREADS)]
    results: dict[int, list[torch.Tensor]] = {}
    in_threads(THREADS, lambda index: results.update({index: train(models[index], index)}))
    for index in range(THREADS):
        for ours, theirs in zip(results[index], train(network("cpu"), index), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
