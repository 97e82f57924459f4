// Elementary functions on the vectors of vector_level.h.
//
// Errors, against exact values: exp 2 ulp, erf 4e-7 absolute, and what follows from these. NaN gives NaN.
#pragma once

#include "kernels/isa/vector_level.h"

namespace neuron::kernels {
namespace {

// exp(x): 2^n * p(r) with r = x - n log 2, |r| <= log(2) / 2. Below -87.3 the result is 0, above 88.3 infinite.
[[gnu::always_inline]] inline Floats exp(Floats x) {
  constexpr float kLog2E = 1.44269504088896341F;
  const Floats low = x < -87.3F ? broadcast(-87.3F) : x;
  const Floats bounded = low > 88.3F ? broadcast(88.3F) : low;
  const Floats shifted = multiply_add(broadcast(12582912.0F), bounded, broadcast(kLog2E));  // 1.5 * 2^23: the low bits are round(x log2 e)
  const Floats n = shifted - 12582912.0F;
  // log 2 in two parts, the first of which has few enough bits for n times it to be exact.
  const Floats r = multiply_add(multiply_add(bounded, n, broadcast(-0.693359375F)), n, broadcast(2.12194440e-4F));
  Floats p = multiply_add(broadcast(1.3981999507e-3F), r, broadcast(1.9875691500e-4F));
  p = multiply_add(broadcast(8.3334519073e-3F), p, r);
  p = multiply_add(broadcast(4.1665795894e-2F), p, r);
  p = multiply_add(broadcast(1.6666665459e-1F), p, r);
  p = multiply_add(broadcast(5.0000001201e-1F), p, r);
  p = multiply_add(r + 1.0F, p, r * r);
  const Words exponent = ((Words)shifted - 0x4b400000U + 127U) << 23;
  const Floats value = p * (Floats)exponent;
  const Floats small = x < -87.3F ? Floats{} : value;
  const Floats large = x > 88.3F ? broadcast(__builtin_inff()) : small;
  return x == x ? large : x;
}

// x / (1 + exp(-x))
[[gnu::always_inline]] inline Floats silu(Floats x) {
  const Floats result = x / (1.0F + exp(-x));
  return x == -__builtin_inff() ? Floats{} : result;
}

// tanh(x) = 1 - 2 / (exp(2 x) + 1), and its series where that cancels.
[[gnu::always_inline]] inline Floats tanh(Floats x) {
  const Floats square = x * x;
  Floats series = multiply_add(broadcast(0.13333333F), square, broadcast(-0.05396825F));
  series = multiply_add(broadcast(-0.33333333F), square, series);
  series = multiply_add(x, x * square, series);
  const Floats far = 1.0F - 2.0F / (exp(2.0F * x) + 1.0F);
  return square < 0.02F ? series : far;
}

// erf(x) after Abramowitz and Stegun 7.1.26 has 1.5e-7; near 0 the series.
[[gnu::always_inline]] inline Floats erf(Floats x) {
  const Floats magnitude = x < 0 ? -x : x;
  const Floats t = 1.0F / multiply_add(broadcast(1.0F), magnitude, broadcast(0.3275911F));
  Floats p = multiply_add(broadcast(-1.453152027F), t, broadcast(1.061405429F));
  p = multiply_add(broadcast(1.421413741F), p, t);
  p = multiply_add(broadcast(-0.284496736F), p, t);
  p = multiply_add(broadcast(0.254829592F), p, t) * t;
  const Floats tail = 1.0F - p * exp(-magnitude * magnitude);
  const Floats square = x * x;
  Floats series = multiply_add(broadcast(0.11283792F), square, broadcast(-0.02686617F));
  series = multiply_add(broadcast(-0.37612638F), square, series);
  series = multiply_add(broadcast(1.12837917F), square, series) * x;
  const Floats far = x < 0 ? -tail : tail;
  return magnitude < 0.2F ? series : far;
}

[[gnu::always_inline]] inline Floats gelu_erf(Floats x) {
  const Floats result = 0.5F * x * (1.0F + erf(x * 0.70710678F));
  return x == -__builtin_inff() ? Floats{} : result;
}

[[gnu::always_inline]] inline Floats gelu_tanh(Floats x) {
  const Floats result = 0.5F * x * (1.0F + tanh(0.79788456F * multiply_add(x, 0.044715F * x * x, x)));
  return x == -__builtin_inff() ? Floats{} : result;
}

}  // namespace
}  // namespace neuron::kernels
