"""`Module.to("neuron")` keeps its parameters the objects that they are, as it does on the devices in PyTorch's own tree."""

import pytest
import torch

CORES = ["neuron", "neuron:1"]


class Tied(torch.nn.Module):
    """A language model's shape: input and output embedding share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        self.head = torch.nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


@pytest.mark.parametrize("device", CORES)
def test_shared_weights_stay_shared(device: str) -> None:
    model = Tied()
    weight = model.embed.weight
    model.to(device)
    assert model.embed.weight is weight
    assert model.head.weight is weight
    assert weight.device.type == "neuron"
    assert len(list(model.parameters())) == 1
    model.to(device, torch.bfloat16).cpu()
    assert model.head.weight is weight
    assert (weight.device.type, weight.dtype) == ("cpu", torch.bfloat16)


@pytest.mark.parametrize("device", CORES)
def test_optimizer_made_before_the_move_updates_the_moved_parameters(device: str) -> None:
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = model.embed.weight.detach().clone()
    model.to(device)
    model(torch.tensor([1, 2], device=device)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.embed.weight.detach().cpu(), before)


def test_gradients_move_with_their_parameters() -> None:
    model = Tied()
    model(torch.tensor([3])).sum().backward()
    expected = model.embed.weight.grad.clone()
    model.to("neuron:2")
    assert model.embed.weight.grad.device == torch.device("neuron:2")
    assert torch.equal(model.embed.weight.grad.cpu(), expected)


def test_data_of_another_kind_is_refused() -> None:
    tensor = torch.zeros(2, 2)
    tensor.data = torch.ones(3, device="neuron")
    assert tensor.device == torch.device("neuron:0")
    assert tensor.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.eye(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.eye(2, device="neuron").to_sparse()
    sparse = torch.eye(2, device="neuron").to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        sparse.data = torch.eye(2, device="neuron")
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        tensor.data = torch.empty(2, device="meta")
