// What kernels on rows of floats need beside isa/vector_level.h: reads and writes of every float dtype, whole vectors or the rest of a row.
// bfloat16 and half are widened exactly and rounded to nearest even; NaN stays NaN. Internal linkage, as there.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/data_type.h"
#include "kernels/isa/vector_level.h"

namespace neuron::kernels {
namespace {

// Calls f(0), ..., f(kCount - 1) with constants.
template <int kCount, class Function>
[[gnu::always_inline]] inline void unrolled(Function&& function) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>)
      __attribute__((always_inline)) { (function(std::integral_constant<int, kIndex>{}), ...); }(std::make_integer_sequence<int, kCount>{});
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Where the mask is true a, else b. Comparisons with NaN are false.
inline Floats select(SignedWords mask, Floats a, Floats b) { return mask ? a : b; }

// The larger; b if either is NaN.
inline Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return select(a > b, a, b);
#endif
}

// To nearest even; for |x| < 2^22 only.
inline Floats round_to_integer(Floats x) {
#if defined(__AVX512F__)
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Floats shift = broadcast(0x1.8p23F);
  return x + shift - shift;
#endif
}

inline Floats read(const float* from) { return load<Floats>(from); }
inline Floats read(const BFloat16* from) { return widen_bf16(load<Halves>(from)); }
inline Floats read(const Half* from) { return widen_f16(load<Halves>(from)); }
inline void write(float* to, Floats x) { store(to, x); }
inline void write(BFloat16* to, Floats x) { store(to, narrow_bf16(x)); }
inline void write(Half* to, Floats x) { store(to, narrow_f16(x)); }

// The first n elements only (0 < n < kLanes): the others read as zero and are not written.
template <class T>
inline Floats read_part(const T* from, std::ptrdiff_t n) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1U << n) - 1);
  if constexpr (sizeof(T) == 4) {
    return _mm512_maskz_loadu_ps(mask, from);
  } else {
    const auto halves = (Halves)_mm256_maskz_loadu_epi16(mask, from);
    return std::is_same_v<T, BFloat16> ? widen_bf16(halves) : widen_f16(halves);
  }
#else
  T whole[kLanes] = {};
  std::memcpy(whole, from, static_cast<std::size_t>(n) * sizeof(T));
  return read(whole);
#endif
}
template <class T>
inline void write_part(T* to, Floats x, std::ptrdiff_t n) {
#if defined(__AVX512F__)
  const auto mask = static_cast<__mmask16>((1U << n) - 1);
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(to, mask, x);
  } else {
    _mm256_mask_storeu_epi16(to, mask, (__m256i)(std::is_same_v<T, BFloat16> ? narrow_bf16(x) : narrow_f16(x)));
  }
#else
  T whole[kLanes];
  write(whole, x);
  std::memcpy(to, whole, static_cast<std::size_t>(n) * sizeof(T));
#endif
}

// Either, when n elements of the row are left.
template <class T>
inline Floats read(const T* from, std::ptrdiff_t n) {
  return n >= kLanes ? read(from) : read_part(from, n);
}
template <class T>
inline void write(T* to, Floats x, std::ptrdiff_t n) {
  if (n >= kLanes) {
    write(to, x);
  } else {
    write_part(to, x, n);
  }
}

template <class T>
inline float read_one(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return *from;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(from->bits) << 16);
  } else {
    return read_part(from, 1)[0];
  }
}

// Lane i of the result is `combine` over the lanes of v[i]. A butterfly: each stage leaves half as many vectors, each of the same lanes of
// twice as many rows. Destroys v.
template <int kBlock = kLanes / 2, class Combine>
inline Floats combine_rows(Floats (&v)[kLanes], Combine combine) {
  unrolled<kBlock>([&](auto i) __attribute__((always_inline)) {
    [&]<int... kLane>(std::integer_sequence<int, kLane...>) __attribute__((always_inline)) {
      v[i] = combine(__builtin_shufflevector(v[i], v[i + kBlock], ((kLane & kBlock) == 0 ? kLane : kLanes + kLane - kBlock)...),
                     __builtin_shufflevector(v[i], v[i + kBlock], ((kLane & kBlock) == 0 ? kLane + kBlock : kLanes + kLane)...));
    }(std::make_integer_sequence<int, kLanes>{});
  });
  if constexpr (kBlock > 1) {
    return combine_rows<kBlock / 2>(v, combine);
  } else {
    return v[0];
  }
}
inline Floats sums_of(Floats (&v)[kLanes]) {
  return combine_rows(v, [](Floats a, Floats b) __attribute__((always_inline)) { return a + b; });
}
inline Floats maxima_of(Floats (&v)[kLanes]) {
  return combine_rows(v, [](Floats a, Floats b) __attribute__((always_inline)) { return larger(a, b); });
}

}  // namespace
}  // namespace neuron::kernels
