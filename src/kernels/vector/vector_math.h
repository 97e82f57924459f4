// Float32 functions without branches, which the compiler turns into vector code. Included once per instruction set, inside the kernels'
// translation units only. Polynomials are Chebyshev fits of ours; errors against the exact value, measured by
// tests/cpp/kernels/vector_math_test.cpp: exp, log, sin, cos, tanh below 1.6 ulp, erf below 2.5 (1.5 more without fused multiply-add), with
// the limits at infinity, NaN and denormals.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace neuron::kernels::vector {
namespace {

// One rounding where the machine has it, two elsewhere.
inline float multiply_add(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
inline double multiply_add(double a, double b, double c) {
#ifdef __FMA__
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

template <typename T>
inline T horner(T, T last) {
  return last;
}
// c0 + x * (c1 + x * (...)).
template <typename T, typename... Rest>
inline T horner(T x, T first, Rest... rest) {
  return multiply_add(x, horner(x, rest...), first);
}

inline float exp_f32(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float bounded = x < -105.0F ? -105.0F : (x > 90.0F ? 90.0F : x);
  const float shifted = multiply_add(bounded, 1.44269504F, kShift);
  const float n = shifted - kShift;
  const float r = multiply_add(n, -0.00174093055995F, multiply_add(n, -0.69140625F, bounded));
  const float q = horner(r, 0.5F, 0.166665778F, 0.0416665561F, 0.00836317334F, 0.00139261759F);
  const float p = 1.0F + multiply_add(r * r, q, r);
  // 2^n in two factors, so that results below the normal range come out right.
  const std::int32_t k = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kShift);
  const std::int32_t half = k >> 1;
  const float low = std::bit_cast<float>((half + 127) << 23);
  const float high = std::bit_cast<float>((k - half + 127) << 23);
  return p * low * high;
}

inline float log_f32(float x) {
  constexpr std::int32_t kRootHalf = 0x3f3504f3;
  const bool small = x < 1.17549435e-38F;
  const float scaled = small ? x * 8388608.0F : x;
  const std::int32_t bits = std::bit_cast<std::int32_t>(scaled) - kRootHalf;
  const float e = static_cast<float>(bits >> 23) - (small ? 23.0F : 0.0F);
  const float f = std::bit_cast<float>((bits & 0x007fffff) + kRootHalf) - 1.0F;
  const float q = horner(f, 0.333333313F, -0.24999997F, 0.200007156F, -0.166678026F, 0.142490581F, -0.124256872F, 0.116854198F,
                         -0.114797339F, 0.0697161183F);
  const float tail = multiply_add(f * f, multiply_add(f, q, -0.5F), e * 0.00174093055995F);
  const float result = multiply_add(e, 0.69140625F, f + tail);
  const float infinity = std::numeric_limits<float>::infinity();
  const float finite = x == infinity ? infinity : result;
  const float positive = x == 0.0F ? -infinity : finite;
  return x < 0.0F || x != x ? std::numeric_limits<float>::quiet_NaN() : positive;
}

inline float with_sign(float magnitude, float sign) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(magnitude) & 0x7fffffffU) | (std::bit_cast<std::uint32_t>(sign) & 0x80000000U));
}

inline float tanh_f32(float x) {
  const float a = x < 0.0F ? -x : x;
  const float z = x * x;
  const float near_zero = multiply_add(x * z, horner(z, -0.333333284F, 0.133327693F, -0.0538509078F, 0.0209971797F, -0.00609671418F), x);
  const float far = with_sign(1.0F - 2.0F / (exp_f32(a + a) + 1.0F), x);
  return a < 0.625F ? with_sign(near_zero, x) : (x != x ? x : far);
}

inline float erf_f32(float x) {
  const float a = x < 0.0F ? -x : x;
  const float z = x * x;
  const float near_zero = multiply_add(
      x, horner(z, 0.128379167F, -0.37612626F, 0.112835944F, -0.0268542115F, 0.00518908724F, -0.00080168643F, 7.87587487e-05F), x);
  const float b = a > 4.1F ? 4.1F : a;
  const float log_erfc = horner(b, 0.000297937455F, -1.1301415F, -0.631987095F, -0.10992448F, 0.0263302755F, -0.00472672516F,
                                0.000589598902F, -4.51810156e-05F, 1.59170622e-06F);
  const float far = with_sign(1.0F - exp_f32(log_erfc), x);
  return a < 1.0F ? near_zero : (x != x ? x : far);
}

// Angles are reduced in float64, which is exact enough up to here. Beyond, the scalar functions are called instead.
#ifdef __FMA__
constexpr float kLargestAngle = 1.0e9F;
#else
constexpr float kLargestAngle = 1.0e6F;  // so far products with pi / 2 are exact
#endif

// sin for quarter = 0, cos for quarter = 1.
inline float sine_f32(float x, std::int64_t quarter) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = multiply_add(static_cast<double>(x), 0.6366197723675814, kShift);
  const double n = shifted - kShift;
  const double r = multiply_add(n, -6.0771005065061926015e-11, multiply_add(n, -0x1.921fb544p+0, static_cast<double>(x)));
  const std::int64_t k = std::bit_cast<std::int64_t>(shifted) + quarter;  // the shift's own low bits are 0
  const double z = r * r;
  const double sine =
      multiply_add(r * z, horner(z, -0.16666666663741367, 0.00833333183062943, -0.00019840063040804117, 2.7246868722877944e-06), r);
  const double cosine =
      multiply_add(z * z, horner(z, 0.04166666666422613, -0.0013888887635227975, 2.4800580601354642e-05, -2.7298407652795173e-07),
                   multiply_add(z, -0.5, 1.0));
  const double magnitude = (k & 1) != 0 ? cosine : sine;
  return static_cast<float>((k & 2) != 0 ? -magnitude : magnitude);
}

// To bfloat16 and back: round to nearest even, NaN becomes the quiet one.
inline std::uint32_t bf16_bits(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return x != x ? 0x7fc00000U : rounded & 0xffff0000U;
}
inline float round_bf16(float x) { return std::bit_cast<float>(bf16_bits(x)); }

}  // namespace
}  // namespace neuron::kernels::vector
