"""The distribution of every random operator: goodness of fit at fixed seeds, ranges and open or closed ends, per dtype."""

import math

import pytest
import torch
from scipy import stats

DEVICE = "neuron"
COUNT = 100_000
# At a fixed seed a test either always passes or always fails; below this a correct sampler would be unlucky once in 10,000 seeds.
SIGNIFICANCE = 1e-4

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(20240)


def empty(dtype=torch.float32, count=COUNT):
    return torch.empty(count, device=DEVICE, dtype=dtype)


def assert_continuous(values: torch.Tensor, distribution) -> None:
    """Kolmogorov-Smirnov for types that resolve the distribution; for the 16-bit types, against the distribution rounded to them."""
    assert values.device.type == DEVICE
    host = values.cpu()
    if host.dtype in (torch.float32, torch.float64):
        assert stats.kstest(host.double().numpy(), distribution.cdf).pvalue > SIGNIFICANCE
        return
    exact = torch.from_numpy(distribution.rvs(size=COUNT, random_state=1)).to(host.dtype)
    edges = torch.quantile(exact.double(), torch.linspace(0, 1, 33, dtype=torch.float64)).unique()
    # Bins between representable values, so that rounding puts a number into the same bin on both sides.
    table = torch.stack([torch.bucketize(x.double(), edges).bincount(minlength=len(edges) + 1) for x in (exact, host)])
    table = table[:, table.sum(0) > 10]
    assert stats.chi2_contingency(table.numpy()).pvalue > SIGNIFICANCE


def assert_discrete(values: torch.Tensor, mass) -> None:
    """Pearson's test of integer values against the probability of each value; values expected fewer than 5 times are one cell."""
    observed = torch.bincount(values.cpu().long().flatten())
    n = int(observed.sum())
    expected = torch.tensor([mass(k) for k in range(len(observed))], dtype=torch.float64) * n
    frequent = expected >= 5
    assert frequent.any()
    assert observed[expected == 0].sum() == 0
    rare_observed, rare_expected = int(observed[~frequent].sum()), n - float(expected[frequent].sum())
    observed_cells, expected_cells = observed[frequent].tolist(), expected[frequent].tolist()
    if rare_expected >= 5:
        observed_cells.append(rare_observed)
        expected_cells.append(rare_expected)
    else:
        observed_cells[-1] += rare_observed
        expected_cells[-1] += rare_expected
    if len(observed_cells) > 1:
        assert stats.chisquare(observed_cells, expected_cells).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", FLOATING)
def test_uniform(dtype):
    values = empty(dtype).uniform_(-1, 1)
    assert values.min() >= -1
    assert values.max() < 1
    assert values.double().mean().item() == pytest.approx(0, abs=0.02)
    if dtype in (torch.float32, torch.float64):
        assert_continuous(values, stats.uniform(-1, 2))
    else:
        assert_discrete((values.double() + 1) * 8, lambda k: 1 / 16)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 5), (100, 101), (1, 1.0625), (7, 7), (-1e-3, 0)])
def test_uniform_is_half_open(dtype, low, high):
    values = empty(dtype).uniform_(low, high)
    rounded_low, rounded_high = torch.tensor([low, high], dtype=dtype).tolist()
    assert values.min().item() >= rounded_low
    if rounded_low < rounded_high:
        assert values.max().item() < rounded_high
    else:
        assert values.unique().tolist() == [rounded_low]


@pytest.mark.parametrize("dtype", FLOATING)
def test_normal(dtype):
    assert_continuous(empty(dtype).normal_(3, 2), stats.norm(3, 2))


def test_normal_is_white():
    values = empty().normal_().cpu().double()
    for lag in (1, 2, 3, 4, 64):
        assert (values[lag:] * values[:-lag]).mean().item() == pytest.approx(0, abs=4 / math.sqrt(COUNT))
        assert ((values[lag:] ** 2 - 1) * (values[:-lag] ** 2 - 1)).mean().item() == pytest.approx(0, abs=8 / math.sqrt(COUNT))


@pytest.mark.parametrize("std", [0.0, 1e-3, 50.0])
def test_normal_scales(std):
    values = empty(torch.float64).normal_(-7, std)
    assert values.mean().item() == pytest.approx(-7, abs=5 * std / math.sqrt(COUNT) + 1e-12)
    assert values.std().item() == pytest.approx(std, rel=0.02, abs=1e-12)


def test_complex_normal_has_unit_variance():
    values = empty(torch.complex64).normal_().cpu()
    assert_continuous(values.real.contiguous().to(DEVICE), stats.norm(0, math.sqrt(0.5)))
    assert_continuous(values.imag.contiguous().to(DEVICE), stats.norm(0, math.sqrt(0.5)))


def test_complex_uniform_fills_both_parts():
    values = torch.rand(COUNT, device=DEVICE, dtype=torch.complex64).cpu()
    assert_continuous(values.real.contiguous().to(DEVICE), stats.uniform())
    assert_continuous(values.imag.contiguous().to(DEVICE), stats.uniform())


def test_normal_with_tensor_parameters():
    mean = torch.arange(4, device=DEVICE, dtype=torch.float32).repeat(COUNT)
    std = torch.tensor([1.0, 2.0, 0.5, 3.0], device=DEVICE).repeat(COUNT)
    for values, sigma in [
        (torch.normal(mean, std), [1, 2, 0.5, 3]),
        (torch.normal(mean, 2.0), [2] * 4),
        (torch.normal(mean, std, out=torch.empty(0, device=DEVICE)), [1, 2, 0.5, 3]),
    ]:
        for column in range(4):
            assert_continuous(values.view(-1, 4)[:, column].contiguous(), stats.norm(column, sigma[column]))
    for column in range(4):
        assert_continuous(torch.normal(5.0, std).view(-1, 4)[:, column].contiguous(), stats.norm(5, [1, 2, 0.5, 3][column]))


@pytest.mark.parametrize("dtype", FLOATING)
def test_exponential(dtype):
    values = empty(dtype).exponential_(0.5)
    assert values.min() > 0
    assert_continuous(values, stats.expon(scale=2))


@pytest.mark.parametrize("dtype", FLOATING)
def test_log_normal(dtype):
    assert_continuous(empty(dtype).log_normal_(0.5, 0.7), stats.lognorm(0.7, scale=math.exp(0.5)))


@pytest.mark.parametrize("dtype", FLOATING)
def test_cauchy(dtype):
    assert_continuous(empty(dtype).cauchy_(1, 3), stats.cauchy(1, 3))


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS])
def test_geometric(dtype):
    values = empty(dtype).geometric_(0.3)
    assert values.min() == 1
    assert_discrete(values, lambda k: stats.geom(0.3).pmf(k))


def test_geometric_saturates_integers():
    assert empty(torch.int8).geometric_(1e-9).unique().tolist() == [127]


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS, torch.uint16, torch.uint32, torch.uint64])
def test_random_from_to(dtype):
    values = empty(dtype).random_(3, 17)
    assert_discrete(values.to(torch.int64), lambda k: 1 / 14 if 3 <= k < 17 else 0)


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS, torch.bool])
def test_random_covers_the_type(dtype):
    values = empty(dtype).random_().cpu()
    digits = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}
    largest = 1 if dtype is torch.bool else 2 ** digits[dtype] if dtype in digits else torch.iinfo(dtype).max
    as_double = values.double()
    assert as_double.min() >= 0
    assert as_double.max() <= largest
    cells = min(16, largest + 1)
    in_cell = lambda x: (x / (largest + 1) * cells).long()  # noqa: E731
    # Of 257 or 2049 integers, one cell has one more than the others.
    shares = in_cell(torch.arange(min(largest + 1, 2**16), dtype=torch.float64) * ((largest + 1) / min(largest + 1, 2**16))).bincount()
    assert_discrete(in_cell(as_double), lambda k: int(shares[k]) / int(shares.sum()))


def test_random_full_int64_range():
    values = empty(torch.int64).random_(-(2**63), None).cpu()
    for bit in range(64):
        assert ((values >> bit) & 1).double().mean().item() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(COUNT))


def test_random_large_ranges():
    low, high = -(2**62), 2**62 + 12345
    values = empty(torch.int64).random_(low, high).cpu()
    assert values.min() >= low
    assert values.max() < high
    assert_discrete(((values.double() - low) / (high - low) * 16).long(), lambda k: 1 / 16)


def test_randint_and_randint_like():
    assert_discrete(torch.randint(5, (COUNT,), device=DEVICE), lambda k: 0.2)
    assert_discrete(torch.randint_like(empty(torch.float32), 2, 7), lambda k: 0.2 * (2 <= k < 7))


def test_randperm_is_a_uniform_permutation():
    assert torch.equal(torch.randperm(5000, device=DEVICE).sort().values.cpu(), torch.arange(5000))
    permutations = torch.stack([torch.randperm(4, device=DEVICE) for _ in range(6000)]).cpu()
    codes = (permutations * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = codes.unique(return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts.tolist()).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8, torch.float16])
def test_randperm_dtype_and_out(dtype):
    out = torch.empty(7, 2, device=DEVICE, dtype=dtype)[:, 0]
    assert torch.randperm(7, out=out, device=DEVICE, dtype=dtype).data_ptr() == out.data_ptr()
    assert sorted(out.tolist()) == list(range(7))


@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS, torch.bool])
@pytest.mark.parametrize("p", [0.0, 0.002, 0.25, 0.5, 0.999, 1.0])
def test_bernoulli(dtype, p):
    values = empty(dtype).bernoulli_(p).double()
    assert set(values.unique().tolist()) <= {0.0, 1.0}
    assert values.mean().item() == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / COUNT))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_bernoulli_with_tensor_probabilities(dtype):
    p = torch.tensor([0.0, 0.1, 0.75, 1.0], device=DEVICE)
    means = torch.empty(COUNT, 4, device=DEVICE, dtype=dtype).bernoulli_(p).double().mean(0)
    assert torch.allclose(means.cpu(), p.cpu().double(), atol=0.008)
    means = torch.bernoulli(p.expand(COUNT, 4)).mean(0)
    assert torch.allclose(means.cpu(), p.cpu(), atol=0.008)
    assert means[0] == 0
    assert means[3] == 1


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("dtype", FLOATING)
def test_multinomial_frequencies(samples, replacement, dtype):
    p = torch.tensor([4.0, 0.0, 1.0, 2.0, 3.0], device=DEVICE, dtype=dtype)
    drawn = torch.multinomial(p.expand(COUNT, 5), samples, replacement=replacement)
    assert drawn.shape == (COUNT, samples)
    assert drawn.dtype == torch.int64
    assert_discrete(drawn[:, 0], lambda k: [0.4, 0, 0.1, 0.2, 0.3][k])
    if replacement:
        assert_discrete(drawn, lambda k: [0.4, 0, 0.1, 0.2, 0.3][k])
    elif samples > 1:
        assert all(len(set(row)) == samples for row in drawn[:500].tolist())
        # The second draw given that the first was category 0.
        assert_discrete(drawn[drawn[:, 0] == 0][:, 1], lambda k: [0, 0, 1 / 6, 2 / 6, 3 / 6][k])


def test_multinomial_of_a_vector():
    assert torch.multinomial(torch.tensor([0.0, 0.0, 1.0], device=DEVICE), 1).tolist() == [2]
    assert sorted(torch.multinomial(torch.ones(6, device=DEVICE), 6).tolist()) == list(range(6))
    assert_discrete(torch.multinomial(torch.tensor([1.0, 3.0], device=DEVICE), COUNT, replacement=True), lambda k: [0.25, 0.75][k])


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("rate", [0.0, 0.5, 8.0, 30.0])
def test_poisson(dtype, rate):
    values = torch.poisson(torch.full((COUNT,), rate, device=DEVICE, dtype=dtype))
    assert values.dtype == dtype
    if rate:
        assert_discrete(values, lambda k: stats.poisson(rate).pmf(k))
    else:
        assert values.abs().sum() == 0


@pytest.mark.parametrize(("n", "p"), [(10, 0.3), (100, 0.02), (100, 0.5), (60, 0.9)])
def test_binomial(n, p):
    values = torch.binomial(torch.full((COUNT, 1), float(n), device=DEVICE), torch.full((1,), p, device=DEVICE))
    assert_discrete(values, lambda k: stats.binom(n, p).pmf(k))
    assert torch.binomial(torch.tensor([3.0, 4.0]).to(DEVICE), torch.tensor([1.0, 0.0]).to(DEVICE)).tolist() == [3, 0]


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 7.5, 300.0])
def test_gamma(shape):
    values = torch._standard_gamma(torch.full((COUNT,), shape, device=DEVICE, dtype=torch.float64))
    assert_continuous(values, stats.gamma(shape))


@pytest.mark.parametrize("concentration", [[0.5, 1.5, 3.0], [1e-8, 1e-8, 1e-8]])
def test_dirichlet(concentration):
    alpha = torch.tensor(concentration, device=DEVICE, dtype=torch.float64)
    values = torch._sample_dirichlet(alpha.expand(COUNT, 3))
    assert torch.allclose(values.sum(1).cpu(), torch.ones(COUNT, dtype=torch.float64), atol=1e-12)
    means = values.mean(0).cpu()
    assert torch.allclose(means, (alpha / alpha.sum()).cpu(), atol=0.008)
    if concentration[0] > 0.1:
        assert_continuous(values[:, 0].contiguous(), stats.beta(concentration[0], sum(concentration[1:])))


def test_torch_distributions_sample_on_the_device():
    rate = torch.tensor(2.0, device=DEVICE)
    for distribution in [
        torch.distributions.Gamma(rate, rate),
        torch.distributions.Beta(rate, rate),
        torch.distributions.Poisson(rate),
        torch.distributions.Categorical(torch.ones(4, device=DEVICE)),
        torch.distributions.StudentT(rate),
        torch.distributions.VonMises(rate, rate),
    ]:
        assert distribution.sample((100,)).device.type == DEVICE
    shape = torch.full((1000,), 2.0, device=DEVICE, requires_grad=True)
    torch.distributions.Gamma(shape, 1.0).rsample().sum().backward()
    # d E[x] / d shape is 1 for every element.
    assert shape.grad.mean().item() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.95])
def test_dropout_scales_what_it_keeps(dtype, p):
    x = (torch.randn(COUNT, device=DEVICE) + 3).to(dtype)
    output, mask = torch.native_dropout(x, p, True)
    assert (output.dtype, mask.dtype) == (dtype, torch.bool)
    assert mask.double().mean().item() == pytest.approx(1 - p, abs=4.5 * math.sqrt(p * (1 - p) / COUNT))
    host, kept = x.cpu(), mask.cpu()
    assert torch.equal(output.cpu(), host.mul(kept).mul_(1 / (1 - p)))


def test_dropout_edges():
    x = torch.tensor([1.0, math.inf, math.nan], device=DEVICE)
    for p, train in [(0.0, True), (1.0, True), (0.5, False)]:
        output, mask = torch.native_dropout(x, p, train)
        expected, expected_mask = torch.native_dropout(x.cpu(), p, train)
        assert torch.equal(mask.cpu(), expected_mask)
        assert torch.allclose(output.cpu(), expected, equal_nan=True)
    assert torch.native_dropout(torch.empty(0, 3, device=DEVICE), 0.5, True)[0].shape == (0, 3)


def test_dropout_keeps_the_memory_format():
    x = torch.ones(4, 8, 5, 5, device=DEVICE).to(memory_format=torch.channels_last)
    torch.manual_seed(5)
    output, mask = torch.native_dropout(x, 0.5, True)
    assert output.is_contiguous(memory_format=torch.channels_last)
    assert mask.is_contiguous(memory_format=torch.channels_last)
    torch.manual_seed(5)
    assert torch.equal(torch.native_dropout(x.contiguous(), 0.5, True)[0], output)


@pytest.mark.parametrize("layer", [torch.nn.Dropout, torch.nn.AlphaDropout, torch.nn.Dropout2d, torch.nn.FeatureAlphaDropout])
def test_dropout_backward(layer):
    dropout = layer(0.3)
    x = (torch.rand(16, 32, 5, 5, device=DEVICE) + 1).requires_grad_()
    torch.manual_seed(5)
    y = dropout(x)
    y.backward(torch.full_like(y, 3.0))
    # Each output is affine in its own input: dy/dx is the scale where kept, 0 where dropped.
    torch.manual_seed(5)
    slope = dropout(x.detach() + 1) - y.detach()
    assert torch.allclose(x.grad, 3 * slope, atol=1e-4)
    assert slope.abs().min() < 1e-5
    assert slope.abs().max() > 0.5


def test_rrelu():
    x = torch.randn(COUNT, device=DEVICE)
    noise = torch.empty_like(x)
    y = torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 0.4, True)
    negative = x <= 0
    assert torch.equal(y, x * noise)
    assert (noise[~negative] == 1).all()
    assert_continuous(noise[negative], stats.uniform(0.1, 0.3))
    evaluated = torch.nn.functional.rrelu(x, 0.1, 0.4, training=False)
    assert torch.equal(evaluated.cpu(), torch.nn.functional.rrelu(x.cpu(), 0.1, 0.4, training=False))
    x.requires_grad_()
    torch.nn.functional.rrelu(x, 0.1, 0.4, training=True).sum().backward()
    assert_continuous(x.grad[negative], stats.uniform(0.1, 0.3))
