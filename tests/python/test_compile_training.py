"""Training graphs: gradients equal eager's, activations are freed as the backward consumes them, random numbers are the same."""

import copy
import gc
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
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A transformer block with dropout, small enough to compile quickly."""

    def __init__(self, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        attention = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


def make(dropout: float = 0.0) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(Block(dropout=dropout), Block(dropout=dropout)).to(DEVICE), torch.randn(2, 5, 16).to(DEVICE)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_forward_and_backward_match_eager() -> None:
    model, x = make()
    reference = copy.deepcopy(model)
    reference(x).square().sum().backward()
    compile_neuron(model)(x).square().sum().backward()
    assert_close(gradients(model), gradients(reference))
    assert graph_count() == 2


def test_training_steps_follow_eager_without_recompiling() -> None:
    model, x = make()
    reference = copy.deepcopy(model)
    compiled = compile_neuron(model)
    losses: list[list[float]] = []
    for network, call in ((reference, reference), (model, compiled)):
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(5):
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[1][-1] < losses[1][0]
    assert graph_count() == 2


def test_gradient_of_an_input_and_of_a_mutated_view() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[1:].mul_(3)
        return y.exp().sum()

    inputs = [torch.arange(4.0).to(DEVICE).requires_grad_() for _ in range(2)]
    function(inputs[0]).backward()
    compile_neuron(function)(inputs[1]).backward()
    assert_same(inputs[1].grad, inputs[0].grad)


def test_backward_twice_needs_retain_graph() -> None:
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    loss = compile_neuron(lambda t: (t.exp() * t).sum())(x)
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    x.grad = None
    loss.backward()
    assert_same(x.grad, first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_same_seed_same_dropout_as_eager() -> None:
    model, x = make(dropout=0.3)
    reference = copy.deepcopy(model)
    compiled = compile_neuron(model)
    results = []
    for call in (reference, compiled):
        torch.manual_seed(123)
        outputs = [call(x) for _ in range(3)]
        sum(output.square().sum() for output in outputs).backward()
        results.append([output.detach() for output in outputs] + [torch.rand(4, device=DEVICE)])
    assert_close(results[1], results[0])
    assert not torch.equal(results[1][0], results[1][1]), "each step draws new numbers"
    assert_close(gradients(model), gradients(reference))
    assert_same(results[1][-1], results[0][-1])


def test_same_seed_same_random_operators_as_eager() -> None:
    def function(x: torch.Tensor) -> Any:
        noise = torch.rand_like(x)
        torch.randn(3, device=x.device)  # nobody reads it, but eager draws its numbers
        return (
            noise,
            torch.randn(2, 3, device=x.device),
            torch.randint(0, 100, (5,), device=x.device),
            torch.bernoulli(noise),
            nn.functional.dropout(x, 0.5),
            torch.randperm(6, device=x.device),
            torch.multinomial(noise.softmax(-1), 2),
            x.clone().normal_(),
            x.clone().uniform_(2, 3),
            x.clone().exponential_(),
            torch.normal(x, 0.1),
        )

    x = torch.ones(4, 4, device=DEVICE)
    compiled = compile_neuron(function)
    compiled(x)
    results = []
    for call in (function, compiled):
        torch.manual_seed(7)
        results.append([call(x), call(x), torch.rand(2, device=DEVICE)])
    assert_same(results[1][0], results[0][0])
    assert_same(results[1][1], results[0][1])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_activation_checkpointing(dropout: float) -> None:
    model, x = make(dropout)
    reference = copy.deepcopy(model)

    def step(network: nn.Module, t: torch.Tensor) -> torch.Tensor:
        for block in network:
            t = checkpoint(block, t, use_reentrant=False)
        return t.square().sum()

    for network, call in ((reference, step), (model, compile_neuron(step))):
        torch.manual_seed(5)
        call(network, x).backward()
    assert_close(gradients(model), gradients(reference))


def test_autocast_training() -> None:
    model, x = make()
    reference = copy.deepcopy(model)
    for call in (reference, compile_neuron(model)):
        with torch.autocast("neuron", dtype=torch.bfloat16):
            loss = call(x).float().square().mean()
        loss.backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, gradients(reference)[name], rtol=0.05, atol=0.02)


def test_backward_frees_activations_as_it_goes() -> None:
    size = 1 << 18  # float32: 1 MiB each
    layers = 16

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(layers):
            x = torch.sigmoid(x)  # saves its result
        return x.sum()

    x = torch.zeros(size, device=DEVICE, requires_grad=True)
    compiled = compile_neuron(function)
    compiled(x).backward()
    x.grad = None
    gc.collect()
    before = torch.neuron.memory_allocated()
    loss = compiled(x)
    held = torch.neuron.memory_allocated() - before
    torch.neuron.reset_peak_memory_stats()
    loss.backward()
    extra = torch.neuron.max_memory_allocated() - before - held
    assert extra <= 3 * size * 4 + 4096, "the gradient in flight and little else on top of the activations"
    del loss
    x.grad = None
    assert torch.neuron.memory_allocated() == before
