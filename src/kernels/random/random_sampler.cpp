// Rejection samplers for gamma, Poisson and binomial variates.
#include "kernels/random/random_sampler.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace neuron::kernels {
namespace {

constexpr double kHalfLogTwoPi = 0.91893853320467274178;

// log(k!) minus Stirling's (k + 1/2) log k - k + log(2 pi) / 2, for an integer k >= 1. (std::lgamma writes a global sign, a data race.)
double stirling_error(double k) noexcept {
  if (k < 16) {
    double factorial = 1;
    for (int i = 2; i <= static_cast<int>(k); ++i) factorial *= i;
    return std::log(factorial) - ((k + 0.5) * std::log(k) - k + kHalfLogTwoPi);
  }
  const double inverse = 1 / k;
  const double inverse2 = inverse * inverse;
  return inverse * (1.0 / 12 - inverse2 * (1.0 / 360 - inverse2 * (1.0 / 1260)));
}

// x log(x / mean) + mean - x for x > 0, without the cancellation of that formula where x is close to mean (Loader 2000).
double deviance(double x, double mean) noexcept {
  const double difference = x - mean;
  const double v = difference / (x + mean);
  if (std::fabs(v) > 0.1) return x * std::log(x / mean) - difference;
  // log(x / mean) = 2 atanh(v)
  double sum = difference * v;
  double power = 2 * x * v;
  for (int i = 1; i < 100; ++i) {
    power *= v * v;
    const double next = sum + power / (2 * i + 1);
    if (next == sum) break;
    sum = next;
  }
  return sum;
}

// The logarithm of the probability of k, by saddle-point expansion: accurate to the last digits for means up to 1e300, where the usual
// formulas subtract numbers of the size of the mean.
double log_poisson(double k, double rate) noexcept {
  if (k <= 0) return k < 0 ? -std::numeric_limits<double>::infinity() : -rate;
  return -stirling_error(k) - deviance(k, rate) - kHalfLogTwoPi - 0.5 * std::log(k);
}

double log_binomial(double k, double count, double probability) noexcept {
  if (k <= 0) return count * std::log1p(-probability);
  if (k >= count) return count * std::log(probability);
  const double rest = count - k;
  return stirling_error(count) - stirling_error(k) - stirling_error(rest) - deviance(k, count * probability) -
         deviance(rest, count * (1 - probability)) - kHalfLogTwoPi + 0.5 * (std::log(count / k) - std::log(rest));
}

// A Gamma(shape, 1) variate for shape >= 1.
double sample_large_gamma(SampleStream& random, double shape) noexcept {
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = random.uniform();
    const double x2 = x * x;
    if (u < 1 - 0.0331 * x2 * x2 || std::log(u) < 0.5 * x2 + d * (1 - v + std::log(v))) return d * v;
  }
}

// Sums geometric waiting times until they pass `count`: about count * probability + 1 of them.
double sample_small_binomial(SampleStream& random, double count, double probability) noexcept {
  const double log_failure = std::log1p(-probability);
  double successes = 0;
  for (double trials = std::ceil(std::log(random.uniform()) / log_failure); trials <= count; ++successes) {
    trials += std::ceil(std::log(random.uniform()) / log_failure);
  }
  return successes;
}

double sample_large_binomial(SampleStream& random, double count, double probability) noexcept {
  const double deviation = std::sqrt(count * probability * (1 - probability));
  const double b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * probability;
  const double c = count * probability + 0.5;
  const double inner = 0.92 - 4.2 / b;
  const double alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = std::floor((count + 1) * probability);
  const double log_mode = log_binomial(mode, count, probability);
  for (;;) {
    const double u = random.uniform() - 0.5;
    const double v = random.uniform();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + c);
    if (k < 0 || k > count) continue;
    if (us >= 0.07 && v <= inner) return k;
    if (std::log(v * alpha / (a / (us * us) + b)) <= log_binomial(k, count, probability) - log_mode) return k;
  }
}

}  // namespace

SampleStream::SampleStream(RandomStream stream, std::uint64_t element) noexcept
    : counter_{static_cast<std::uint32_t>(stream.offset + element), static_cast<std::uint32_t>((stream.offset + element) >> 32), 0,
               static_cast<std::uint32_t>(PhiloxDomain::kSampler)},
      key_(philox_key(stream.seed)) {}

std::uint64_t SampleStream::bits64() noexcept {
  if (used_ == 4) {
    words_ = philox(counter_, key_);
    ++counter_[2];
    used_ = 0;
  }
  const std::uint64_t bits = words_[used_] | std::uint64_t{words_[used_ + 1]} << 32;
  used_ += 2;
  return bits;
}

double SampleStream::uniform() noexcept { return (static_cast<double>(bits64() >> 12) + 0.5) * 0x1p-52; }

double SampleStream::normal() noexcept {
  if (has_spare_) {
    has_spare_ = false;
    return spare_normal_;
  }
  const double radius = std::sqrt(-2 * std::log(uniform()));
  const double angle = 2 * std::numbers::pi * uniform();
  spare_normal_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

double sample_log_gamma(SampleStream& random, double shape) noexcept {
  if (std::isnan(shape)) return shape;
  if (shape <= 0) return -std::numeric_limits<double>::infinity();
  if (shape >= 1) return std::log(sample_large_gamma(random, shape));
  // Gamma(shape) is Gamma(shape + 1) times a uniform to the power of 1 / shape.
  return std::log(random.uniform()) / shape + std::log(sample_large_gamma(random, shape + 1));
}

double sample_gamma(SampleStream& random, double shape) noexcept {
  return shape >= 1 ? sample_large_gamma(random, shape) : std::exp(sample_log_gamma(random, shape));
}

double sample_poisson(SampleStream& random, double rate) noexcept {
  if (std::isnan(rate)) return rate;
  if (rate < 10) {
    const double limit = std::exp(-rate);
    int events = 0;
    double product = random.uniform();
    while (product > limit) {
      product *= random.uniform();
      ++events;
    }
    return events;
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double log_inverse_alpha = std::log(1.1239 + 1.1328 / (b - 3.4));
  const double inner = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = random.uniform() - 0.5;
    const double v = random.uniform();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= inner) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + log_inverse_alpha - std::log(a / (us * us) + b) <= log_poisson(k, rate)) return k;
  }
}

double sample_binomial(SampleStream& random, double count, double probability) noexcept {
  if (std::isnan(probability) || std::isnan(count)) return std::numeric_limits<double>::quiet_NaN();
  if (count <= 0 || probability <= 0) return 0;
  if (probability >= 1) return count;
  if (probability > 0.5) return count - sample_binomial(random, count, 1 - probability);
  return count * probability < 10 ? sample_small_binomial(random, count, probability) : sample_large_binomial(random, count, probability);
}

}  // namespace neuron::kernels
