// The inner loop of attention: a tile of rows times a panel of columns, sums in registers.
//
// A panel holds the columns one step of the inner dimension after the other. An element of either operand is 4 bytes: a float, or a pair of
// bfloat16 (two steps at once) where the instruction set multiplies those.
#pragma once

#include "kernels/simd/simd.h"

namespace neuron::kernels {
namespace {

// As many rows as leave two registers for the panel and one for the left operand, and at most one a lane: tile_softmax() keeps a lane for
// each.
constexpr int kTileRows = kRegisters == 32 ? 12 : std::min(6, kLanes);
constexpr int kPanel = 2 * kLanes;

struct FloatElements {
  using Element = float;
  using Weight = float;  // what the softmax writes for it
  static constexpr int kSteps = 1;
  static Floats multiply_add(Floats sum, float a, Floats b) { return sum + a * b; }
};

struct PairElements {
  using Element = std::uint32_t;
  using Weight = BFloat16;
  static constexpr int kSteps = 2;
  static Floats multiply_add(Floats sum, std::uint32_t a, Floats b) { return dot_pairs(sum, Words{} + a, (Words)b); }
};

// What tiles of inputs of type T multiply.
template <class T>
using ElementsOf = std::conditional_t<kHasBf16Dot && std::is_same_v<T, BFloat16>, PairElements, FloatElements>;

// c[i][j] = (kScaled ? factor[i] * c[i][j] : 0) + sum over k < steps of a[i][k] * b[k][j], for kTileRows rows and kVectors * kLanes
// columns. b is a panel of that width. Row strides in elements.
template <class Elements, int kVectors, bool kScaled>
inline void multiply_tile(const typename Elements::Element* a, std::ptrdiff_t a_row, const typename Elements::Element* b,
                          std::ptrdiff_t steps, float* c, std::ptrdiff_t c_row, const float* factor) {
  Floats sums[kTileRows][kVectors];
  unrolled<kTileRows>([&](auto i) __attribute__((always_inline)) {
    unrolled<kVectors>(
        [&](auto j) __attribute__((always_inline)) { sums[i][j] = kScaled ? factor[i] * read(c + i * c_row + j * kLanes) : Floats{}; });
  });
  for (std::ptrdiff_t k = 0; k < steps; ++k) {
    Floats right[kVectors];
    unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { right[j] = load<Floats>(b + (k * kVectors + j) * kLanes); });
    unrolled<kTileRows>([&](auto i) __attribute__((always_inline)) {
      const auto left = a[i * a_row + k];
      unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { sums[i][j] = Elements::multiply_add(sums[i][j], left, right[j]); });
    });
  }
  unrolled<kTileRows>([&](auto i) __attribute__((always_inline)) {
    unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { write(c + i * c_row + j * kLanes, sums[i][j]); });
  });
}

}  // namespace
}  // namespace neuron::kernels
