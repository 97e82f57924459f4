"""Random numbers in PyTorch's own machinery: fork_rng, checkpointing, DTensor's state, vmap, attention, initialisation, compiled graphs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from scipy import stats
from torch.distributed.tensor._random import _PhiloxState
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DEVICE = "neuron"
CORES = torch.neuron.device_count()
COUNT = 50_000
SIGNIFICANCE = 1e-4


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(99)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def draw(core: int = 0) -> list[float]:
    return torch.rand(5, device=f"neuron:{core}").tolist()


# -- states ------------------------------------------------------------------------------------------------------------------------------


def test_fork_rng_of_all_cores_by_name() -> None:
    expected = [draw(core) for core in range(CORES)], torch.rand(3).tolist()
    torch.manual_seed(99)
    with torch.random.fork_rng(devices=range(CORES), device_type="neuron"):
        torch.manual_seed(1)
        assert [draw(core) for core in range(CORES)] != expected[0]
    assert ([draw(core) for core in range(CORES)], torch.rand(3).tolist()) == expected


def test_fork_rng_restores_after_an_error_and_only_what_was_named() -> None:
    before = torch.neuron.get_rng_state_all()
    with pytest.raises(KeyError), torch.random.fork_rng(devices=[1], device_type="neuron"):
        draw(0), draw(1)
        raise KeyError
    after = torch.neuron.get_rng_state_all()
    assert not torch.equal(after[0], before[0])
    assert torch.equal(after[1], before[1])


def test_fork_rng_that_is_switched_off_changes_nothing() -> None:
    with torch.random.fork_rng(devices=[0], enabled=False, device_type="neuron"):
        first = draw()
    torch.manual_seed(99)
    assert draw() == first


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63, 2**64 - 1, -1])
@pytest.mark.parametrize("draws", [0, 1, 4097])
def test_state_round_trip(seed: int, draws: int) -> None:
    """16 bytes: seed and offset, little endian, as DTensor reads them; equal states give equal numbers on every core."""
    torch.neuron.manual_seed_all(seed)
    torch.empty(draws, device=DEVICE).normal_()
    state = torch.neuron.get_rng_state()
    assert (state.dtype, state.shape) == (torch.uint8, (16,))
    philox = _PhiloxState(state.clone())
    assert philox.seed.view(torch.int64).item() % 2**64 == seed % 2**64
    assert int(philox.offset) == (draws + 3) // 4 * 4
    expected = draw()
    for core in range(CORES):
        torch.neuron.set_rng_state(state, core)
        assert draw(core) == expected
    philox.seed = torch.tensor([7], dtype=torch.uint64)
    philox.offset = torch.tensor([64], dtype=torch.uint64)
    torch.neuron.set_rng_state(philox.state)
    assert torch.neuron.initial_seed() == 7
    assert _PhiloxState(torch.neuron.get_rng_state()).offset == 64


def test_dtensor_sees_how_many_numbers_were_drawn() -> None:
    before = int(_PhiloxState(torch.neuron.get_rng_state()).offset)
    torch.rand(1000, device=DEVICE)
    assert int(_PhiloxState(torch.neuron.get_rng_state()).offset) - before == 1000


@pytest.mark.parametrize("shards", [2, 5])
def test_shards_draw_what_the_whole_draws(shards: int) -> None:
    """DTensor's rule: the shard that begins at element n draws at offset + n, on its own core, and gets that part of the whole."""
    whole = torch.empty(shards * 1000, device=DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(31)
    whole.uniform_(generator=generator)
    parts = []
    for shard in range(shards):
        core = f"neuron:{shard % CORES}"
        mine = torch.Generator(core).manual_seed(31)
        mine.set_offset(shard * 1000)
        parts.append(torch.empty(1000, device=core).uniform_(generator=mine).cpu())
    assert torch.equal(torch.cat(parts), whole.cpu())


def test_chunks_of_any_size_draw_the_same_numbers() -> None:
    whole = torch.empty(12_000, device=DEVICE).normal_(generator=torch.Generator(DEVICE).manual_seed(3))
    for size in (4, 60, 1024, 4000):
        generator = torch.Generator(DEVICE).manual_seed(3)
        parts = [torch.empty(size, device=DEVICE).normal_(generator=generator) for _ in range(12_000 // size)]
        assert torch.equal(torch.cat(parts), whole[: size * len(parts)])


def test_threads_share_a_generator_without_sharing_numbers() -> None:
    """Eight threads draw from the default generator at once: together they get exactly the numbers of its stream, each once."""
    found: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(50):
            found.append(torch.empty(64, device=DEVICE, dtype=torch.int64).random_(0, 2**62))

    torch.manual_seed(12)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.manual_seed(12)
    expected = torch.empty(8 * 50 * 64, device=DEVICE, dtype=torch.int64).random_(0, 2**62)
    assert torch.equal(torch.cat(found).sort().values, expected.sort().values)


# -- dropout, checkpointing, attention ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("preserve", [True, False])
def test_checkpointing_with_dropout(reentrant: bool, preserve: bool) -> None:
    """The second forward pass draws the mask of the first if the state is preserved, and goes on with the stream if not."""
    x = torch.ones(4000, device="neuron:1", requires_grad=True)
    y = checkpoint(lambda v: F.dropout(v, 0.5) * v, x, use_reentrant=reentrant, preserve_rng_state=preserve)
    y.sum().backward()
    assert torch.equal(x.grad, 2 * y.detach()) == preserve
    following = torch.rand(5, device="neuron:1")
    torch.manual_seed(99)
    F.dropout(x.detach(), 0.5)
    assert torch.equal(torch.rand(5, device="neuron:1"), following) == preserve


LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "Dropout": (lambda: torch.nn.Dropout(0.3), (64, 64)),
    "Dropout1d": (lambda: torch.nn.Dropout1d(0.3), (16, 32, 8)),
    "Dropout2d": (lambda: torch.nn.Dropout2d(0.3), (16, 32, 4, 4)),
    "Dropout3d": (lambda: torch.nn.Dropout3d(0.3), (16, 32, 2, 3, 2)),
    "AlphaDropout": (lambda: torch.nn.AlphaDropout(0.3), (64, 64)),
    "FeatureAlphaDropout": (lambda: torch.nn.FeatureAlphaDropout(0.3), (16, 32, 8)),
    "RReLU": (torch.nn.RReLU, (64, 64)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_backward_uses_the_mask_of_forward(name: str) -> None:
    """Layers that are linear in what they keep: the gradient of a sum is output over input where the input is negative or kept."""
    build, shape = LAYERS[name]
    layer = build()
    x = (-torch.rand(shape, device=DEVICE, dtype=torch.float64) - 1).requires_grad_()
    torch.manual_seed(5)
    y = layer(x)
    y.sum().backward()
    torch.manual_seed(5)
    step = 1e-3
    slope = (layer(x.detach() + step) - y.detach()) / step
    assert torch.allclose(x.grad, slope, atol=1e-9)
    assert x.grad.unique().numel() > 1


@pytest.mark.parametrize("name", [name for name in LAYERS if "ropout" in name])
def test_share_of_what_is_dropped(name: str) -> None:
    build, _ = LAYERS[name]
    shape = {"Dropout": (COUNT,), "AlphaDropout": (COUNT,)}.get(name, (500, 100, *(2,) * {"1d": 1, "2d": 2, "3d": 3}.get(name[-2:], 1)))
    y = build()(torch.ones(shape, device=DEVICE))
    dropped = y == y.min()
    units = dropped.flatten(2) if len(shape) > 1 else dropped
    if len(shape) > 1:  # whole channels
        assert torch.equal(units.all(-1), units.any(-1))
        units = units[..., 0]
    assert stats.binomtest(int(units.sum()), units.numel(), 0.3).pvalue > SIGNIFICANCE


def test_attention_dropout() -> None:
    """The weights that are kept, 70 %, are scaled by 1 / 0.7; the same seed gives the same result; the gradient agrees with the values."""
    size = 256
    query = torch.zeros(2, 2, size, 8, device=DEVICE)
    values = torch.eye(size, device=DEVICE).expand(2, 2, size, size).clone().requires_grad_()
    torch.manual_seed(3)
    output = F.scaled_dot_product_attention(query, query, values, dropout_p=0.3)
    kept = output > 0
    assert stats.binomtest(int(kept.sum()), kept.numel(), 0.7).pvalue > SIGNIFICANCE
    assert output[kept].detach().sub(1 / size / 0.7).abs().max() < 1e-7
    output.sum().backward()
    # d sum / d values[k, :] is the total weight that went to k.
    assert torch.allclose(values.grad, output.detach().sum(-2).unsqueeze(-1).expand_as(values), atol=1e-5)
    torch.manual_seed(3)
    assert torch.equal(F.scaled_dot_product_attention(query, query, values, dropout_p=0.3), output)


# -- functional transforms ---------------------------------------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda x: torch.rand(20, device=x.device) + 0 * x.sum(),
    "randn_like": torch.randn_like,
    "dropout": lambda x: F.dropout(torch.ones_like(x), 0.5),
    "bernoulli": lambda x: torch.bernoulli(torch.full((20,), 0.5, device=x.device)) + 0 * x.sum(),
    "randperm": lambda x: torch.randperm(20, device=x.device) + 0 * x.sum(),
    "multinomial": lambda x: torch.multinomial(torch.ones(20, device=x.device), 10) + 0 * x.sum(),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "randint": lambda x: torch.randint(0, 1000, (20,), device=x.device) + 0 * x.sum(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_vmap(name: str) -> None:
    """randomness="different": no two examples agree; "same": all do; "error": the error of the CPU."""
    function, x = DRAWS[name], torch.zeros(6, 20, device=DEVICE)
    different = torch.func.vmap(function, randomness="different")(x)
    assert len({tuple(row) for row in different.tolist()}) == 6
    if name != "normal_":  # PyTorch refuses to fill a batched tensor with the same numbers
        same = torch.func.vmap(function, randomness="same")(x)
        assert len({tuple(row) for row in same.tolist()}) == 1
    errors = []
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError) as caught:
            torch.func.vmap(function, randomness="error")(x.to(device))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


# -- initialisation ----------------------------------------------------------------------------------------------------------------------

SHAPE = (400, 250)  # fan in 250, fan out 400
INITIAL = {
    "uniform_": (lambda w: torch.nn.init.uniform_(w, -2, 1), stats.uniform(-2, 3)),
    "normal_": (lambda w: torch.nn.init.normal_(w, 1, 3), stats.norm(1, 3)),
    "trunc_normal_": (lambda w: torch.nn.init.trunc_normal_(w, 0, 1, -1, 2), stats.truncnorm(-1, 2)),
    "xavier_uniform_": (torch.nn.init.xavier_uniform_, stats.uniform(-math.sqrt(6 / 650), 2 * math.sqrt(6 / 650))),
    "xavier_normal_": (torch.nn.init.xavier_normal_, stats.norm(0, math.sqrt(2 / 650))),
    "kaiming_uniform_": (torch.nn.init.kaiming_uniform_, stats.uniform(-math.sqrt(6 / 250), 2 * math.sqrt(6 / 250))),
    "kaiming_normal_": (torch.nn.init.kaiming_normal_, stats.norm(0, math.sqrt(2 / 250))),
}


@pytest.mark.parametrize("name", INITIAL)
def test_initialisation(name: str) -> None:
    fill, distribution = INITIAL[name]
    weights = fill(torch.empty(SHAPE, device=DEVICE))
    assert stats.kstest(weights.cpu().double().flatten().numpy(), distribution.cdf).pvalue > SIGNIFICANCE


def test_initialisation_with_structure() -> None:
    q = torch.nn.init.orthogonal_(torch.empty(40, 60, device=DEVICE))
    assert torch.allclose(q @ q.T, torch.eye(40, device=DEVICE), atol=1e-5)
    sparse = torch.nn.init.sparse_(torch.empty(200, 50, device=DEVICE), 0.3, std=2)
    assert ((sparse == 0).sum(0) == 60).all()
    assert stats.kstest(sparse[sparse != 0].cpu().numpy(), stats.norm(0, 2).cdf).pvalue > SIGNIFICANCE


def test_compiled_functions_draw_the_numbers_of_eager() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.randn_like(x) * torch.rand(1, device=x.device) + torch.bernoulli(torch.full_like(x, 0.5))

    x = torch.ones(500, device=DEVICE)
    torch.manual_seed(8)
    expected = [function(x), function(x)], draw()
    compiled = torch.compile(function, backend="neuron")
    compiled(x)
    torch.manual_seed(8)
    assert torch.equal(torch.stack([compiled(x), compiled(x)]), torch.stack(expected[0]))
    assert draw() == expected[1]
