// Vectors of one instruction set, on the compiler's vector types: what the templates of a kernel are written in.
//
// A translation unit <kernel>_<level>.cpp includes this file and names the level that its own flags stand for (`Level`). Everything lives
// in an anonymous namespace, so that no code compiled for a newer instruction set can be linked into another file.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace neuron::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#else
constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#endif
#if defined(__AVX512BF16__)
constexpr bool kHasBf16Dot = true;
#else
constexpr bool kHasBf16Dot = false;
#endif

using Floats = float __attribute__((vector_size(4 * kLanes)));
using Words = std::uint32_t __attribute__((vector_size(4 * kLanes)));
using SignedWords = std::int32_t __attribute__((vector_size(4 * kLanes)));
using Halves = std::uint16_t __attribute__((vector_size(2 * kLanes)));

// Registers are arrays that functions get by reference and index by the constants of a pack expansion: sum[kIndex] = ..., .... If a loop
// or the capture of a lambda came between, g++ 12 would keep the array in memory.
template <int kCount>
constexpr auto kIndices = std::make_integer_sequence<int, kCount>{};

template <class Vector>
[[gnu::always_inline]] inline Vector load(const void* from) {
  Vector value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class Vector>
[[gnu::always_inline]] inline void store(void* to, Vector value) {
  std::memcpy(to, &value, sizeof value);
}

[[gnu::always_inline]] inline Floats broadcast(float value) { return Floats{} + value; }
[[gnu::always_inline]] inline Floats multiply_add(Floats sum, Floats a, Floats b) { return a * b + sum; }

// Pairs of bfloat16 in the halves of each word: sum + low * low + high * high. Subnormal numbers count as zero.
[[gnu::always_inline]] inline Floats dot_pairs(Floats sum, Words a, Words b) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
  return sum;  // never called: kHasBf16Dot
#endif
}

// g++ 12 converts between vectors of different widths in halves; the intrinsics are one instruction.
[[gnu::always_inline]] inline Words zero_extend(Halves halves) {
#if defined(__AVX512F__)
  return (Words)_mm512_cvtepu16_epi32((__m256i)halves);
#elif defined(__AVX2__)
  return (Words)_mm256_cvtepu16_epi32((__m128i)halves);
#else
  return __builtin_convertvector(halves, Words);
#endif
}
[[gnu::always_inline]] inline Halves lower_halves(Words words) {
#if defined(__AVX512F__)
  return (Halves)_mm512_cvtepi32_epi16((__m512i)words);
#else
  return __builtin_convertvector(words, Halves);
#endif
}
[[gnu::always_inline]] inline Floats widen_bf16(Halves halves) { return (Floats)(zero_extend(halves) << 16); }

// Rounds to nearest, ties to even; a NaN becomes the quiet one.
[[gnu::always_inline]] inline Halves narrow_bf16(Floats value) {
  const auto bits = (Words)value;
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Words chosen = value == value ? rounded : Words{} + 0x7fc0U;
  return lower_halves(chosen);
}

[[gnu::always_inline]] inline Floats widen_f16(Halves halves) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps((__m256i)halves);
#elif defined(__AVX2__)
  return _mm256_cvtph_ps((__m128i)halves);
#else
  Floats value{};
  _Float16 numbers[kLanes];
  std::memcpy(numbers, &halves, sizeof numbers);
  for (int lane = 0; lane < kLanes; ++lane) {
    value[lane] = static_cast<float>(numbers[lane]);
  }
  return value;
#endif
}

[[gnu::always_inline]] inline Halves narrow_f16(Floats value) {
#if defined(__AVX512F__)
  return (Halves)_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
  return (Halves)_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  _Float16 numbers[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    numbers[lane] = static_cast<_Float16>(value[lane]);
  }
  return load<Halves>(numbers);
#endif
}

// The lanes of a's and b's lower (upper) halves in turn: a0 b0 a1 b1 ...
template <class Vector>
[[gnu::always_inline]] inline Vector interleave_lower(Vector a, Vector b) {
  return [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, (kIndex / 2 + kIndex % 2 * kLanes)...);
  }(std::make_integer_sequence<int, kLanes>{});
}
template <class Vector>
[[gnu::always_inline]] inline Vector interleave_upper(Vector a, Vector b) {
  return [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, (kLanes / 2 + kIndex / 2 + kIndex % 2 * kLanes)...);
  }(std::make_integer_sequence<int, kLanes>{});
}

template <class Vector, int... kIndex>
[[gnu::always_inline]] inline void copy_vectors(Vector (&to)[kLanes], const Vector (&from)[kLanes], std::integer_sequence<int, kIndex...>) {
  ((to[kIndex] = from[kIndex]), ...);
}

template <class Vector, int... kIndex>
[[gnu::always_inline]] inline void shuffle_rows(Vector (&to)[kLanes], const Vector (&from)[kLanes], std::integer_sequence<int, kIndex...>) {
  ((to[2 * kIndex] = interleave_lower(from[kIndex], from[kIndex + kLanes / 2]),
    to[2 * kIndex + 1] = interleave_upper(from[kIndex], from[kIndex + kLanes / 2])),
   ...);
}

// Transposes a square of lanes: as many perfect shuffles of the rows as the number of lanes has bits.
template <class Vector>
[[gnu::always_inline]] inline void transpose(Vector (&rows)[kLanes]) {
  constexpr auto kHalf = kIndices<kLanes / 2>;
  Vector shuffled[kLanes];
  shuffle_rows(shuffled, rows, kHalf);
  shuffle_rows(rows, shuffled, kHalf);
  if constexpr (kLanes == 16) {
    shuffle_rows(shuffled, rows, kHalf);
    shuffle_rows(rows, shuffled, kHalf);
  } else if constexpr (kLanes == 8) {
    shuffle_rows(shuffled, rows, kHalf);
    copy_vectors(rows, shuffled, kIndices<kLanes>);
  }
}

template <class Vector, int... kIndex>
[[gnu::always_inline]] inline void load_lines(Vector (&lines)[sizeof...(kIndex)], const void* from, std::int64_t distance,
                                              std::integer_sequence<int, kIndex...>) {
  ((lines[kIndex] = load<Vector>(static_cast<const char*>(from) + kIndex * distance)), ...);
}

// The first `count` of the lines, at a distance of so many bytes.
template <class Vector, int... kIndex>
[[gnu::always_inline]] inline void store_lines(const Vector (&lines)[sizeof...(kIndex)], void* to, std::int64_t distance,
                                               std::int64_t count, std::integer_sequence<int, kIndex...>) {
  if (count == sizeof...(kIndex)) {
    (store(static_cast<char*>(to) + kIndex * distance, lines[kIndex]), ...);
  } else {
    ((kIndex < count ? store(static_cast<char*>(to) + kIndex * distance, lines[kIndex]) : void()), ...);
  }
}

[[gnu::always_inline]] inline float sum_of(Floats value) {
  float lanes[kLanes];
  store(lanes, value);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) {
      lanes[lane] += lanes[lane + width];
    }
  }
  return lanes[0];
}

}  // namespace
}  // namespace neuron::kernels
