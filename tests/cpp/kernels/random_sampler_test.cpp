// Rejection samplers: goodness of fit against exact distribution functions, edge cases, independence of elements.
#include "kernels/random/random_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <set>
#include <vector>

#include "kernels/random/random_fill.h"

namespace neuron::kernels {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Sample>
std::vector<double> draw(std::uint64_t seed, std::uint64_t count, const Sample& sample) {
  std::vector<double> values;
  for (std::uint64_t i = 0; i < count; ++i) {
    SampleStream random({seed, 0}, i);
    values.push_back(sample(random));
  }
  return values;
}

template <class Cdf>
double kolmogorov_smirnov(std::vector<double> values, const Cdf& cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = cdf(values[i]);
    distance = std::max({distance, std::fabs(static_cast<double>(i) / n - expected), std::fabs(static_cast<double>(i + 1) / n - expected)});
  }
  return distance * std::sqrt(n);
}

// Pearson's statistic over outcomes with an expectation of at least 10, as a deviation from its mean in standard deviations.
template <class LogMass>
double chi_square_deviation(const std::vector<double>& values, const LogMass& log_mass) {
  std::map<double, double> counts;
  for (const double value : values) ++counts[value];
  const auto n = static_cast<double>(values.size());
  const double last = counts.rbegin()->first;
  double statistic = 0;
  double cells = 0;
  double rest_expected = n;
  double rest_observed = n;
  for (int k = 0; k <= static_cast<int>(last); ++k) {
    const double expected = n * std::exp(log_mass(k));
    if (expected < 10) continue;
    const auto found = counts.find(k);
    const double observed = found == counts.end() ? 0 : found->second;
    statistic += (observed - expected) * (observed - expected) / expected;
    rest_expected -= expected;
    rest_observed -= observed;
    ++cells;
  }
  if (rest_expected >= 5) statistic += (rest_observed - rest_expected) * (rest_observed - rest_expected) / rest_expected;
  return (statistic - cells) / std::sqrt(2 * cells);
}

TEST(SampleStream, ElementsHaveStreamsOfTheirOwn) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t element = 0; element < 1000; ++element) {
    SampleStream random({5, 0}, element);
    for (int i = 0; i < 10; ++i) seen.insert(random.bits64());
  }
  std::vector<std::uint64_t> bulk(10'000);
  random_fill().bits64({5, 0}, 0, bulk.size(), bulk.data());
  seen.insert(bulk.begin(), bulk.end());
  EXPECT_EQ(seen.size(), 20'000u);
}

TEST(SampleStream, AnOffsetIsAnIndex) {
  SampleStream moved({5, 400}, 3);
  SampleStream plain({5, 0}, 403);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(moved.bits64(), plain.bits64());
}

TEST(SampleStream, UniformIsOpenAndNormalIsNormal) {
  const auto uniform = draw(1, 100'000, [](SampleStream& random) { return random.uniform(); });
  EXPECT_GT(*std::min_element(uniform.begin(), uniform.end()), 0.0);
  EXPECT_LT(*std::max_element(uniform.begin(), uniform.end()), 1.0);
  EXPECT_LT(kolmogorov_smirnov(uniform, [](double x) { return x; }), 1.95);
  const auto second = draw(2, 100'000, [](SampleStream& random) { return random.normal(), random.normal(); });
  EXPECT_LT(kolmogorov_smirnov(second, [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }), 1.95);
}

TEST(SampleGamma, FitsExactDistributions) {
  // Shape 1/2 is half the square of a normal; shape 3 is an Erlang distribution.
  const auto half = draw(3, 100'000, [](SampleStream& random) { return sample_gamma(random, 0.5); });
  EXPECT_LT(kolmogorov_smirnov(half, [](double x) { return std::erf(std::sqrt(x)); }), 1.95);
  const auto three = draw(4, 100'000, [](SampleStream& random) { return sample_gamma(random, 3); });
  EXPECT_LT(kolmogorov_smirnov(three, [](double x) { return 1 - std::exp(-x) * (1 + x + x * x / 2); }), 1.95);
  const auto one = draw(5, 100'000, [](SampleStream& random) { return sample_gamma(random, 1); });
  EXPECT_LT(kolmogorov_smirnov(one, [](double x) { return -std::expm1(-x); }), 1.95);
}

TEST(SampleGamma, LogarithmsReachBelowUnderflow) {
  SampleStream random({6, 0}, 0);
  const double log_value = sample_log_gamma(random, 1e-6);
  EXPECT_TRUE(std::isfinite(log_value));
  EXPECT_LT(log_value, -1000);
  EXPECT_EQ(sample_gamma(random, 0), 0);
  EXPECT_TRUE(std::isnan(sample_gamma(random, kNan)));
}

TEST(SamplePoisson, FitsTheMassFunction) {
  for (const double rate : {0.3, 4.0, 9.9, 10.0, 37.5, 1000.0}) {
    const auto values = draw(7, 100'000, [&](SampleStream& random) { return sample_poisson(random, rate); });
    EXPECT_LT(std::fabs(chi_square_deviation(values, [&](double k) { return k * std::log(rate) - rate - std::lgamma(k + 1); })), 4) << rate;
  }
}

TEST(SamplePoisson, EdgeCases) {
  SampleStream random({8, 0}, 0);
  EXPECT_EQ(sample_poisson(random, 0), 0);
  EXPECT_TRUE(std::isnan(sample_poisson(random, kNan)));
  EXPECT_NEAR(sample_poisson(random, 1e15) / 1e15, 1, 1e-6);
}

TEST(SampleBinomial, FitsTheMassFunction) {
  struct Parameters {
    double count, probability;
  };
  for (const auto [n, p] : {Parameters{5, 0.3}, {20, 0.5}, {40, 0.25}, {1000, 0.009}, {1000, 0.4}, {200, 0.95}, {3, 0.99}}) {
    const auto values = draw(9, 100'000, [n = n, p = p](SampleStream& random) { return sample_binomial(random, n, p); });
    EXPECT_LE(*std::max_element(values.begin(), values.end()), n);
    EXPECT_GE(*std::min_element(values.begin(), values.end()), 0);
    const auto log_mass = [n = n, p = p](double k) {
      return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) + (n - k) * std::log1p(-p);
    };
    EXPECT_LT(std::fabs(chi_square_deviation(values, log_mass)), 4) << n << " " << p;
  }
}

TEST(SampleBinomial, EdgeCases) {
  SampleStream random({10, 0}, 0);
  EXPECT_EQ(sample_binomial(random, 0, 0.5), 0);
  EXPECT_EQ(sample_binomial(random, -3, 0.5), 0);
  EXPECT_EQ(sample_binomial(random, 7, 0), 0);
  EXPECT_EQ(sample_binomial(random, 7, -1), 0);
  EXPECT_EQ(sample_binomial(random, 7, 1), 7);
  EXPECT_EQ(sample_binomial(random, 7, 2), 7);
  EXPECT_TRUE(std::isnan(sample_binomial(random, 7, kNan)));
  EXPECT_TRUE(std::isnan(sample_binomial(random, kNan, 0.5)));
}

}  // namespace
}  // namespace neuron::kernels
