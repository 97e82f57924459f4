"""Every class of torch.distributions sampled on the device: goodness of fit against scipy's distribution, in float32 and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy import stats
from torch import distributions as td

DEVICE = "neuron"
COUNT = 30_000
# At a fixed seed a test either always passes or always fails; below this a correct sampler would be unlucky once in 10,000 seeds.
SIGNIFICANCE = 1e-4

# Builds the distribution from a function that makes a tensor of its parameters.
Build = Callable[[Callable[..., torch.Tensor]], td.Distribution]

CONTINUOUS: dict[str, tuple[Build, Any]] = {
    "Uniform": (lambda t: td.Uniform(t(-2.0), t(3.0)), stats.uniform(-2, 5)),
    "Normal": (lambda t: td.Normal(t(3.0), t(2.0)), stats.norm(3, 2)),
    "LogNormal": (lambda t: td.LogNormal(t(0.5), t(0.7)), stats.lognorm(0.7, scale=math.exp(0.5))),
    "HalfNormal": (lambda t: td.HalfNormal(t(2.0)), stats.halfnorm(scale=2)),
    "Exponential": (lambda t: td.Exponential(t(0.3)), stats.expon(scale=1 / 0.3)),
    "Laplace": (lambda t: td.Laplace(t(1.0), t(2.0)), stats.laplace(1, 2)),
    "Cauchy": (lambda t: td.Cauchy(t(1.0), t(2.0)), stats.cauchy(1, 2)),
    "HalfCauchy": (lambda t: td.HalfCauchy(t(2.0)), stats.halfcauchy(scale=2)),
    "Gumbel": (lambda t: td.Gumbel(t(1.0), t(2.0)), stats.gumbel_r(1, 2)),
    "Gamma": (lambda t: td.Gamma(t(0.6), t(2.0)), stats.gamma(0.6, scale=0.5)),
    "Gamma of a large shape": (lambda t: td.Gamma(t(40.0), t(1.0)), stats.gamma(40)),
    "InverseGamma": (lambda t: td.InverseGamma(t(3.0), t(2.0)), stats.invgamma(3, scale=2)),
    "Chi2": (lambda t: td.Chi2(t(3.0)), stats.chi2(3)),
    "Beta": (lambda t: td.Beta(t(0.5), t(2.5)), stats.beta(0.5, 2.5)),
    "StudentT": (lambda t: td.StudentT(t(4.0), t(1.0), t(2.0)), stats.t(4, 1, 2)),
    "FisherSnedecor": (lambda t: td.FisherSnedecor(t(5.0), t(7.0)), stats.f(5, 7)),
    "Pareto": (lambda t: td.Pareto(t(2.0), t(3.0)), stats.pareto(3, scale=2)),
    "GeneralizedPareto": (lambda t: td.GeneralizedPareto(t(1.0), t(2.0), t(0.3)), stats.genpareto(0.3, 1, 2)),
    "Weibull": (lambda t: td.Weibull(t(2.0), t(1.5)), stats.weibull_min(1.5, scale=2)),
    "VonMises": (lambda t: td.VonMises(t(0.0), t(2.0)), stats.vonmises(2)),
    "MixtureSameFamily": (
        lambda t: td.MixtureSameFamily(td.Categorical(t([0.25, 0.75])), td.Uniform(t([0.0, 1.0]), t([1.0, 2.0]))),
        lambda x: (0.25 * x).clip(0, 0.25) + (0.75 * (x - 1)).clip(0, 0.75),
    ),
    "TransformedDistribution": (
        lambda t: td.TransformedDistribution(td.Uniform(t(0.0), t(1.0)), [td.SigmoidTransform().inv]),
        stats.logistic,
    ),
    "Kumaraswamy": (lambda t: td.Kumaraswamy(t(2.0), t(3.0)), lambda x: 1 - (1 - x**2) ** 3),
    "ContinuousBernoulli": (lambda t: td.ContinuousBernoulli(t(0.2)), lambda x: (0.2**x * 0.8 ** (1 - x) + 0.2 - 1) / (2 * 0.2 - 1)),
    # logit(p) plus a logistic number, over the temperature.
    "LogitRelaxedBernoulli": (
        lambda t: td.relaxed_bernoulli.LogitRelaxedBernoulli(t(0.5), t(0.3)),
        stats.logistic(math.log(0.3 / 0.7) / 0.5, 2),
    ),
    "RelaxedBernoulli": (
        lambda t: td.TransformedDistribution(td.RelaxedBernoulli(t(2.0), t(0.3)), [td.SigmoidTransform().inv]),
        stats.logistic(math.log(0.3 / 0.7) / 2, 0.5),
    ),
}

DISCRETE: dict[str, tuple[Build, Callable[[int], float]]] = {
    "Bernoulli": (lambda t: td.Bernoulli(t(0.3)), stats.bernoulli(0.3).pmf),
    "Binomial": (lambda t: td.Binomial(20, t(0.35)), stats.binom(20, 0.35).pmf),
    "Binomial of many": (lambda t: td.Binomial(500, t(0.6)), stats.binom(500, 0.6).pmf),
    "Categorical": (lambda t: td.Categorical(t([1.0, 0.0, 3.0, 2.0])), lambda k: [1 / 6, 0, 3 / 6, 2 / 6][k]),
    "Geometric": (lambda t: td.Geometric(t(0.2)), lambda k: stats.geom(0.2).pmf(k + 1)),
    "Poisson": (lambda t: td.Poisson(t(4.0)), stats.poisson(4).pmf),
    "Poisson of a large rate": (lambda t: td.Poisson(t(120.0)), stats.poisson(120).pmf),
    "NegativeBinomial": (lambda t: td.NegativeBinomial(t(3.0), t(0.4)), stats.nbinom(3, 0.6).pmf),
}

# Reduced to one number a sample whose distribution is known.
MULTIVARIATE: dict[str, tuple[Build, Callable[[torch.Tensor], torch.Tensor], Any]] = {
    "Dirichlet": (lambda t: td.Dirichlet(t([0.5, 1.5, 3.0])), lambda x: x[:, 1], stats.beta(1.5, 3.5)),
    "MultivariateNormal": (
        lambda t: td.MultivariateNormal(t([1.0, -1.0]), t([[2.0, 0.6], [0.6, 1.0]])),
        lambda x: x @ x.new_tensor([1.0, 2.0]),
        stats.norm(-1, math.sqrt(2 + 4 * 0.6 + 4)),
    ),
    "LowRankMultivariateNormal": (
        lambda t: td.LowRankMultivariateNormal(t([1.0, 0.0]), t([[1.0], [2.0]]), t([0.5, 1.5])),
        lambda x: x @ x.new_tensor([1.0, 1.0]),
        stats.norm(1, math.sqrt(9 + 2)),
    ),
    "Independent": (lambda t: td.Independent(td.Normal(t([0.0, 1.0]), t([1.0, 2.0])), 1), lambda x: x.sum(1), stats.norm(1, math.sqrt(5))),
    "Wishart": (lambda t: td.Wishart(t(5.0), torch.eye(2).to(t(1.0))), lambda x: x.diagonal(dim1=1, dim2=2).sum(1), stats.chi2(10)),
    "LKJCholesky": (lambda t: td.LKJCholesky(2, t(1.5)), lambda x: (x[:, 1, 0] + 1) / 2, stats.beta(1.5, 1.5)),
    "LogisticNormal": (lambda t: td.LogisticNormal(t([0.5]), t([0.8])), lambda x: (x[:, 0] / x[:, 1]).log(), stats.norm(0.5, 0.8)),
    "OneHotCategorical": (lambda t: td.OneHotCategorical(t([1.0, 3.0])), lambda x: x[:, 1], stats.bernoulli(0.75)),
    "OneHotCategoricalStraightThrough": (
        lambda t: td.OneHotCategoricalStraightThrough(t([1.0, 3.0])),
        lambda x: x[:, 1],
        stats.bernoulli(0.75),
    ),
    "RelaxedOneHotCategorical": (
        lambda t: td.RelaxedOneHotCategorical(t(0.5), t([1.0, 3.0])),
        lambda x: x.argmax(1),
        stats.bernoulli(0.75),
    ),
    "Multinomial": (lambda t: td.Multinomial(10, t([1.0, 3.0])), lambda x: x[:, 0], stats.binom(10, 0.25)),
}
ABSTRACT = {"Distribution", "ExponentialFamily"}


def sample(build: Build, dtype: torch.dtype) -> torch.Tensor:
    """`COUNT` samples at a fixed seed, made on the device from parameters on the device; returned on the host in float64."""
    torch.manual_seed(77)
    values = build(lambda value: torch.tensor(value, device=DEVICE, dtype=dtype)).sample((COUNT,))
    assert values.device.type == DEVICE
    assert not values.isnan().any()
    return values.cpu().double()


def assert_continuous(values: torch.Tensor, distribution: Any) -> None:
    cdf = distribution.cdf if hasattr(distribution, "cdf") else distribution
    assert stats.kstest(values.numpy(), cdf).pvalue > SIGNIFICANCE


def assert_discrete(values: torch.Tensor, mass: Callable[[int], float]) -> None:
    """Pearson's test; neighbouring values are pooled until a cell is expected 10 times."""
    observed = torch.bincount(values.long())
    assert torch.equal(values, values.round())
    cells, found, expected = [], 0.0, 0.0
    for k, count in enumerate(observed.tolist()):
        probability = float(mass(k))
        assert probability > 0 or count == 0
        found, expected = found + count, expected + probability * COUNT
        if expected >= 10:
            cells.append([found, expected])
            found = expected = 0.0
    cells[-1][0] += found
    cells[-1][1] += COUNT - sum(cell[1] for cell in cells)  # and everything above the largest value seen
    assert stats.chisquare(*zip(*cells, strict=True)).pvalue > SIGNIFICANCE


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@DTYPES
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str, dtype: torch.dtype) -> None:
    build, distribution = CONTINUOUS[name]
    assert_continuous(sample(build, dtype), distribution)


@DTYPES
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str, dtype: torch.dtype) -> None:
    build, mass = DISCRETE[name]
    assert_discrete(sample(build, dtype), mass)


@pytest.mark.filterwarnings("ignore:Singular sample detected")  # Wishart rejects such samples itself
@DTYPES
@pytest.mark.parametrize("name", MULTIVARIATE)
def test_multivariate(name: str, dtype: torch.dtype) -> None:
    build, reduce, distribution = MULTIVARIATE[name]
    values = reduce(sample(build, dtype)).double()
    if hasattr(distribution, "pmf"):
        assert_discrete(values, distribution.pmf)
    else:
        assert_continuous(values, distribution)


@pytest.mark.parametrize("name", ["Uniform", "Normal", "Gumbel", "Laplace", "Exponential", "Cauchy", "Weibull"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_types(name: str, dtype: torch.dtype) -> None:
    """Medians and quartiles to the precision of the type; no infinities where the type can hold what is likely."""
    build, distribution = CONTINUOUS[name]
    values = sample(build, dtype)
    resolution = torch.finfo(dtype).eps
    for q in (0.1, 0.25, 0.5, 0.75, 0.9):
        share = (values <= distribution.ppf(q)).double().mean().item()
        # Rounding moves what is within half a unit in the last place across the quantile.
        width = float(abs(distribution.ppf(q)) * resolution * distribution.pdf(distribution.ppf(q)))
        assert share == pytest.approx(q, abs=5 * math.sqrt(q * (1 - q) / COUNT) + width + resolution * q)


def test_gradients_of_samples() -> None:
    """rsample: the mean of d sample / d parameter is the derivative of the mean."""
    torch.manual_seed(7)
    for build, derivative in [
        (lambda p: td.Normal(p, 1.0), 1.0),
        (td.Exponential, -1 / 4),
        (lambda p: td.Gamma(p, 1.0), 1.0),
        (lambda p: td.Beta(p, 3.0), 3 / 25),
        (lambda p: td.Laplace(0.0 * p, p), 0.0),
    ]:
        parameter = torch.full((COUNT,), 2.0, device=DEVICE, dtype=torch.float64, requires_grad=True)
        build(parameter).rsample().sum().backward()
        gradient = parameter.grad
        assert gradient.mean().item() == pytest.approx(derivative, abs=5 * gradient.std().item() / math.sqrt(COUNT))


def test_every_distribution_is_tested() -> None:
    classes = {name for name in td.__all__ if isinstance(getattr(td, name), type) and issubclass(getattr(td, name), td.Distribution)}
    assert classes - ABSTRACT - set(CONTINUOUS) - set(DISCRETE) - set(MULTIVARIATE) == set()
