"""Random numbers at the ends: extreme parameters, tails, whole ranges, ties; and independence of neighbours, seeds, offsets and cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from scipy import stats

DEVICE = "neuron"
COUNT = 100_000
SIGNIFICANCE = 1e-4


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(4711)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def full(value: float, dtype: torch.dtype = torch.float64, count: int = COUNT) -> torch.Tensor:
    return torch.full((count,), value, device=DEVICE, dtype=dtype)


def assert_mean(values: torch.Tensor, mean: float, deviation: float) -> None:
    values = values.double()
    assert values.mean().item() == pytest.approx(mean, abs=4.5 * deviation / math.sqrt(values.numel()))


# -- extreme parameters ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1e-12, 1e-4, 9.999, 10.0, 10.001, 1e3, 1e6, 1e9, 1e15])
def test_poisson_of_every_size(rate: float) -> None:
    values = torch.poisson(full(rate))
    assert torch.equal(values, values.round())
    assert values.min() >= 0
    assert_mean(values, rate, math.sqrt(rate))
    if rate >= 9:
        assert (values.double().var() / rate).item() == pytest.approx(1, abs=5 * math.sqrt((2 + 1 / rate) / COUNT))
    if 9 < rate < 1e7:
        edges = stats.poisson(rate).ppf([0.1, 0.3, 0.5, 0.7, 0.9])
        shares = [(values <= edge).double().mean().item() for edge in edges]
        assert shares == pytest.approx(stats.poisson(rate).cdf(edges).tolist(), abs=4.5 * 0.5 / math.sqrt(COUNT))


def test_poisson_of_nothing_and_too_much() -> None:
    assert torch.poisson(full(0.0)).unique().tolist() == [0]
    assert torch.poisson(full(6e4, torch.float16, 100)).isfinite().all()
    assert torch.poisson(full(1e300, count=100)).sub(1e300).abs().max() < 1e152


@pytest.mark.parametrize(
    ("n", "p"),
    [(1, 0.5), (1, 1e-9), (10**6, 1e-6), (10**6, 1 - 1e-6), (10**9, 0.3), (10**12, 1e-13), (25, 0.39), (25, 0.41), (10**15, 0.5)],
)
def test_binomial_of_every_size(n: int, p: float) -> None:
    values = torch.binomial(full(n), full(p))
    assert values.min() >= 0
    assert values.max() <= n
    assert torch.equal(values, values.round())
    assert_mean(values, n * p, math.sqrt(n * p * (1 - p)))
    if n * p > 5 and n * (1 - p) > 5:
        assert (values.var() / (n * p * (1 - p))).item() == pytest.approx(1, abs=5 * math.sqrt(2.5 / COUNT))


def test_binomial_that_cannot_vary() -> None:
    for n, p, expected in [(0, 0.5, 0), (7, 0, 0), (7, 1, 7), (10**15, 1, 10**15)]:
        assert torch.binomial(full(n, count=50), full(p, count=50)).unique().tolist() == [expected]


@pytest.mark.parametrize("shape", [1e-3, 0.999, 1.0, 1.001, 1e4, 1e10])
def test_gamma_of_every_shape(shape: float) -> None:
    values = torch._standard_gamma(full(shape))
    assert values.min() > 0
    assert stats.kstest(values.cpu().numpy(), lambda x: stats.gamma(shape).cdf(x)).pvalue > SIGNIFICANCE or shape < 0.01
    assert_mean(values, shape, math.sqrt(shape))
    if shape < 0.01:  # most values are far below the smallest double, and sit at it
        assert (values > 1e-300).double().mean().item() == pytest.approx(1 - stats.gamma(shape).cdf(1e-300), abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("p", [1e-7, 1e-3, 0.5, 0.999, 1 - 1e-9])
def test_geometric_of_every_rarity(p: float, dtype: torch.dtype) -> None:
    values = torch.empty(COUNT, device=DEVICE, dtype=dtype).geometric_(p)
    assert values.min() >= 1
    assert_mean(values, 1 / p, math.sqrt(1 - p) / p)


@pytest.mark.parametrize("p", [1e-5, 2**-8, 0.5, 1 - 2**-8, 1 - 1e-5])
@pytest.mark.parametrize("way", ["scalar", "tensor", "dropout"])
def test_rare_and_common_flips(p: float, way: str) -> None:
    count = 4_000_000
    if way == "scalar":
        values = torch.empty(count, device=DEVICE, dtype=torch.bool).bernoulli_(p)
    elif way == "tensor":
        values = torch.bernoulli(torch.full((), p, device=DEVICE, dtype=torch.float64).expand(count))
    else:
        values = torch.native_dropout(torch.ones(count, device=DEVICE), 1 - p, True)[1]
    ones = int(values.sum())
    assert stats.binomtest(ones, count, p).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float32], ids=str)
def test_ranges_of_one_and_of_two(dtype: torch.dtype) -> None:
    assert torch.empty(1000, device=DEVICE, dtype=dtype).random_(5, 6).unique().tolist() == [5]
    values = torch.empty(COUNT, device=DEVICE, dtype=dtype).random_(6, 8).double() - 6
    assert_mean(values, 0.5, 0.5)


@pytest.mark.parametrize(("low", "high"), [(-(2**63), 2**63 - 1), (-(2**63), -(2**63) + 3), (2**63 - 4, 2**63 - 1), (-1, 2**62)])
def test_ranges_at_the_ends_of_int64(low: int, high: int) -> None:
    values = torch.empty(COUNT, device=DEVICE, dtype=torch.int64).random_(low, high)
    assert values.min().item() >= low
    assert values.max().item() < high
    position = [(value - low) / (high - low) for value in values[:20_000].tolist()]
    mean, deviation = (0.5, 1 / math.sqrt(12)) if high - low > 10 else (1 / 3, math.sqrt(2) / 3)
    assert sum(position) / len(position) == pytest.approx(mean, abs=4.5 * deviation / math.sqrt(len(position)))


def test_tails_of_the_normal() -> None:
    """Four million numbers reach as far as they should, no further, and equally often on both sides."""
    values = torch.empty(4_000_000, device=DEVICE).normal_()
    for limit in (3.0, 4.0, 4.5):
        for tail in (values > limit, values < -limit):
            assert stats.binomtest(int(tail.sum()), len(values), stats.norm.sf(limit)).pvalue > SIGNIFICANCE
    assert 4.5 < values.abs().max() < 6.7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_small_exponentials(dtype: torch.dtype) -> None:
    """Near 0, where races between many categories are decided, exponential numbers are as dense as they should be and all distinct."""
    values = torch.empty(8_000_000, device=DEVICE, dtype=dtype).exponential_()
    small = values[values < 1e-5].cpu().double()
    assert stats.kstest(small.numpy(), stats.uniform(0, 1e-5).cdf).pvalue > SIGNIFICANCE
    assert len(small.unique()) > 0.95 * len(small)


def test_multinomial_of_very_many_categories() -> None:
    """No category is preferred for its place when a million race: the winner is uniform, with and without replacement."""
    categories, draws = 1 << 20, 200
    p = torch.ones(categories, device=DEVICE)
    winners = torch.stack([torch.multinomial(p, 1) for _ in range(draws)]).double().cpu().flatten() / categories
    assert stats.kstest(winners.numpy(), stats.uniform.cdf).pvalue > SIGNIFICANCE
    several = torch.multinomial(p, 2000).double().cpu() / categories
    assert stats.kstest(several.numpy(), stats.uniform.cdf).pvalue > SIGNIFICANCE
    replaced = torch.multinomial(p, COUNT, replacement=True).double().cpu() / categories
    assert stats.kstest(replaced.numpy(), stats.uniform.cdf).pvalue > SIGNIFICANCE


def test_multinomial_of_unequal_weights() -> None:
    """Weights over 30 orders of magnitude, one impossible category, and rows that all differ."""
    weights = torch.tensor([1e-30, 1.0, 0.0, 1e-3, 2.0], dtype=torch.float64)
    for replacement in (False, True):
        drawn = torch.multinomial(weights.to(DEVICE).expand(COUNT, 5), 1, replacement=replacement).flatten().cpu()
        observed = drawn.bincount(minlength=5)
        assert observed[0] == observed[2] == 0
        expected = (weights / weights.sum() * COUNT)[[1, 3, 4]]
        assert stats.chisquare(observed[[1, 3, 4]].numpy(), expected.numpy(), sum_check=False).pvalue > SIGNIFICANCE
    assert torch.equal(torch.multinomial(torch.eye(50, device=DEVICE), 1).flatten().cpu(), torch.arange(50))


@pytest.mark.parametrize("n", [2, 3, 5, 100])
def test_every_place_of_a_permutation_is_uniform(n: int) -> None:
    rounds = 4000
    places = torch.stack([torch.randperm(n, device=DEVICE) for _ in range(rounds)]).cpu()
    for place in {0, 1, n // 2, n - 1}:
        assert stats.chisquare(places[:, place].bincount(minlength=n).numpy()).pvalue > SIGNIFICANCE / n
    fixed = (places == torch.arange(n)).sum(1).double()
    assert fixed.mean().item() == pytest.approx(1, abs=4.5 * fixed.std().item() / math.sqrt(rounds) + 1e-9)


# -- independence ------------------------------------------------------------------------------------------------------------------------


def correlation(x: torch.Tensor, y: torch.Tensor) -> float:
    x, y = x.double().cpu(), y.double().cpu()
    return float((x - x.mean()) @ (y - y.mean()) / (len(x) * x.std() * y.std()))


FILLS = {
    "uniform": lambda x: x.uniform_(),
    "normal": lambda x: x.normal_(),
    "exponential": lambda x: x.exponential_(),
    "bernoulli": lambda x: x.bernoulli_(0.5),
    "double": lambda x: x.copy_(torch.empty(x.shape, device=x.device, dtype=torch.float64).normal_()),
    "poisson": lambda x: x.copy_(torch.poisson(torch.full(x.shape, 5.0, device=x.device))),
    "gamma": lambda x: x.copy_(torch._standard_gamma(torch.full(x.shape, 5.0, device=x.device))),
}


@pytest.mark.parametrize("fill", FILLS)
def test_neighbours_seeds_and_calls_are_independent(fill: str) -> None:
    bound = 4.5 / math.sqrt(COUNT)

    def numbers(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(seed)
        return FILLS[fill](torch.empty(COUNT, device=DEVICE)), FILLS[fill](torch.empty(COUNT, device=DEVICE))

    first, second = numbers(1)
    for lag in (1, 2, 3, 4, 8, 32, 1024):
        assert abs(correlation(first[lag:], first[:-lag])) < bound, f"lag {lag}"
        assert abs(correlation(first[lag:].square(), first[:-lag])) < bound, f"lag {lag}, squares"
    assert abs(correlation(first, second)) < bound
    for seed in (2, 1 + 2**32, 2**63, 1 << 20):
        other, _ = numbers(seed)
        assert abs(correlation(first, other)) < bound, f"seed {seed}"
        assert abs(correlation(first.square(), other)) < bound, f"seed {seed}, squares"


def test_kinds_of_numbers_from_one_place_are_not_the_same() -> None:
    """A fill and a sampler that start from one state use different words: an element is not decided twice by the same bits."""
    generator = torch.Generator(DEVICE).manual_seed(3)
    rates = torch.full((COUNT,), 5.0, device=DEVICE)
    uniform = torch.empty(COUNT, device=DEVICE).uniform_(generator=generator)
    generator.manual_seed(3)
    assert abs(correlation(uniform, torch.poisson(rates, generator=generator))) < 4.5 / math.sqrt(COUNT)


def test_cores_that_drew_differently_are_independent() -> None:
    """Cores share the seed, as devices do in PyTorch; their own `seed()` makes them independent."""
    torch.neuron.manual_seed_all(5)
    torch.neuron.set_rng_state(torch.Generator(DEVICE).manual_seed(6).get_state(), "neuron:1")
    first, second = (torch.randn(COUNT, device=f"neuron:{core}") for core in range(2))
    assert abs(correlation(first, second)) < 4.5 / math.sqrt(COUNT)


def test_bits_pass_a_serial_test() -> None:
    """Pairs and triples of neighbouring 4-bit and 3-bit digits are equally frequent, from all 32-bit positions of the words."""
    bits = torch.empty(600_000, device=DEVICE, dtype=torch.int64).random_(0, 2**32).cpu()
    for shift in (0, 7, 16, 28):
        digits = (bits >> shift) & 15
        assert stats.chisquare((digits[1:] * 16 + digits[:-1]).bincount(minlength=256).numpy()).pvalue > SIGNIFICANCE
        triples = (digits[2:] & 7) * 64 + (digits[1:-1] & 7) * 8 + (digits[:-2] & 7)
        assert stats.chisquare(triples.bincount(minlength=512).numpy()).pvalue > SIGNIFICANCE
