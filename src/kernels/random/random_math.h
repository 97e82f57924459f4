// Vector logarithm, sine and cosine for the random fills. Only IEEE additions, multiplications, divisions and exact conversions, in a fixed
// order (compile with -ffp-contract=off): the bits are the same on every instruction set. V is the vector type set of one instruction set.
#pragma once

#include <bit>
#include <cstdint>

namespace neuron::kernels {

// atanh(s) / s - 1 for |s| up to (sqrt(2) - 1) / (sqrt(2) + 1), from s squared: its power series.
template <class V>
inline typename V::F32 vector_atanh_series(typename V::F32 s2) {
  return s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9))));
}

// log(x) for normal x > 0, within 2 ulp: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)) as its power series.
template <class V>
inline typename V::F32 vector_log(typename V::F32 x) {
  using U32 = typename V::U32;
  using F32 = typename V::F32;
  constexpr std::uint32_t kSqrtHalf = 0x3F3504F3;
  const U32 shifted = reinterpret_cast<U32>(x) - kSqrtHalf;
  const F32 exponent = __builtin_convertvector(reinterpret_cast<typename V::I32>(shifted) >> 23, F32);
  const F32 m = reinterpret_cast<F32>((shifted & 0x007FFFFFu) + kSqrtHalf);
  const F32 s = (m - 1.0f) / (m + 1.0f);
  const F32 series = vector_atanh_series<V>(s * s);
  // ln 2 in two parts: the high one has few enough digits that exponent * high is exact.
  const F32 high = exponent * 0.693359375f;
  return high + (2.0f * s + (2.0f * s * series + exponent * -2.12194440e-4f));
}

template <class V>
inline typename V::F64 vector_log(typename V::F64 x) {
  using U64 = typename V::U64;
  using F64 = typename V::F64;
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const U64 shifted = reinterpret_cast<U64>(x) - kSqrtHalf;
  // The exponent becomes a double through the mantissa of 2^52 (no 64-bit conversion or arithmetic shift, which AVX2 lacks).
  constexpr double kMagic = 0x1p52;
  constexpr std::uint64_t kBias = 1023;
  const U64 biased = (shifted + (kBias << 52)) >> 52;
  const F64 exponent = reinterpret_cast<F64>(biased | std::bit_cast<std::uint64_t>(kMagic)) - (kMagic + kBias);
  const F64 m = reinterpret_cast<F64>((shifted & 0x000FFFFFFFFFFFFFu) + kSqrtHalf);
  const F64 s = (m - 1.0) / (m + 1.0);
  const F64 s2 = s * s;
  F64 series = s2 * (1.0 / 21);
  series = s2 * (1.0 / 19 + series);
  series = s2 * (1.0 / 17 + series);
  series = s2 * (1.0 / 15 + series);
  series = s2 * (1.0 / 13 + series);
  series = s2 * (1.0 / 11 + series);
  series = s2 * (1.0 / 9 + series);
  series = s2 * (1.0 / 7 + series);
  series = s2 * (1.0 / 5 + series);
  series = s2 * (1.0 / 3 + series);
  const F64 high = exponent * 0.693147180369123816490;
  return high + (2.0 * s + (2.0 * s * series + exponent * 1.90821492927058770002e-10));
}

// sin and cos of the angle 2 pi w / 2^32: the two top bits choose the quadrant, the rest is an exact fraction of a quarter turn in [-1/2,
// 1/2].
template <class V>
inline void vector_sincos(typename V::U32 w, typename V::F32& sine, typename V::F32& cosine) {
  using U32 = typename V::U32;
  using F32 = typename V::F32;
  const U32 quadrant = (w + 0x20000000u) >> 30;
  const F32 t = __builtin_convertvector(reinterpret_cast<typename V::I32>(w - (quadrant << 30)), F32) * 0x1p-30f;
  const F32 t2 = t * t;
  // Taylor series of sin and cos(pi/2 t): the first neglected terms are below 4e-9 and 3e-8 at |t| = 1/2.
  const F32 s = t * (1.57079633f + t2 * (-0.645964098f + t2 * (0.0796926262f + t2 * (-0.00468175414f + t2 * 0.000160441185f))));
  const F32 c = 1.0f + t2 * (-1.23370055f + t2 * (0.253669508f + t2 * (-0.0208634808f + t2 * 0.000919260275f)));
  const auto odd = (quadrant & 1u) != 0u;
  const U32 sine_sign = (quadrant & 2u) << 30;
  const U32 cosine_sign = ((quadrant + 1u) & 2u) << 30;
  sine = reinterpret_cast<F32>(reinterpret_cast<U32>(odd ? c : s) ^ sine_sign);
  cosine = reinterpret_cast<F32>(reinterpret_cast<U32>(odd ? s : c) ^ cosine_sign);
}

// sin and cos of 2 pi w / 2^64, from the top 54 bits of w.
template <class V>
inline void vector_sincos(typename V::U64 w, typename V::F64& sine, typename V::F64& cosine) {
  using U64 = typename V::U64;
  using F64 = typename V::F64;
  const U64 turned = w + 0x2000000000000000u;
  const U64 quadrant = turned >> 62;
  // 52 bits of the fraction, converted exactly by being the mantissa of 2^52 + fraction.
  constexpr double kMagic = 0x1p52;
  const U64 fraction = (turned & 0x3FFFFFFFFFFFFFFFu) >> 10;
  const F64 t = (reinterpret_cast<F64>(fraction | std::bit_cast<std::uint64_t>(kMagic)) - (kMagic + 0x1p51)) * 0x1p-52;
  const F64 t2 = t * t;
  // Coefficients (pi/2)^n / n! with alternating signs; the first neglected terms are below 1e-16 at |t| = 1/2.
  F64 s = t2 * -6.6880351098114677e-10;
  s = t2 * (5.6921729219679267e-08 + s);
  s = t2 * (-3.5988432352120852e-06 + s);
  s = t2 * (1.6044118478735983e-04 + s);
  s = t2 * (-4.6817541353186883e-03 + s);
  s = t2 * (7.9692626246167048e-02 + s);
  s = t2 * (-6.4596409750624628e-01 + s);
  s = t * (1.5707963267948966 + s);
  F64 c = t2 * 6.5659631149794728e-11;
  c = t2 * (-6.3866030837918521e-09 + c);
  c = t2 * (4.7108747788181717e-07 + c);
  c = t2 * (-2.5202042373060607e-05 + c);
  c = t2 * (9.1926027483942659e-04 + c);
  c = t2 * (-2.0863480763352961e-02 + c);
  c = t2 * (2.5366950790104803e-01 + c);
  c = t2 * (-1.2337005501361697 + c);
  c = 1.0 + c;
  const auto odd = (quadrant & 1u) != 0u;
  const U64 sine_sign = (quadrant & 2u) << 62;
  const U64 cosine_sign = ((quadrant + 1u) & 2u) << 62;
  sine = reinterpret_cast<F64>(reinterpret_cast<U64>(odd ? c : s) ^ sine_sign);
  cosine = reinterpret_cast<F64>(reinterpret_cast<U64>(odd ? s : c) ^ cosine_sign);
}

}  // namespace neuron::kernels
