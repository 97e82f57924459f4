// The inner loop of attention: a tile of rows times a panel of columns, sums in registers.
//
// A panel holds the columns one step of the inner dimension after the other. An element of either operand is 4 bytes: a float, or a pair of
// bfloat16 (two steps at once) where the instruction set multiplies those.
#pragma once

#include "kernels/simd/simd.h"
#if defined(__AMX_BF16__)
#include "kernels/isa/tiles.h"
#endif

namespace neuron::kernels {
namespace {

#if defined(__AMX_BF16__)
constexpr bool kHasTiles = true;
#else
constexpr bool kHasTiles = false;
#endif

// As many rows as leave two registers for the panel and one for the left operand, or those of a tile register, and at most one a lane:
// softmax_step() keeps a lane for each.
constexpr int kTileRows = kHasTiles ? 16 : kRegisters == 32 ? 12 : std::min(6, kLanes);
constexpr int kPanel = 2 * kLanes;

struct FloatElements {
  using Element = float;
  using Weight = float;  // what the softmax writes for it
  static constexpr int kSteps = 1;
  static constexpr bool kTiled = false;  // whether tile registers multiply them
  static constexpr int kDepthUnit = 1;   // elements along the head dimension are a multiple
  struct Registers {};                   // what a thread holds while it multiplies
  static Floats multiply_add(Floats sum, float a, Floats b) { return sum + a * b; }
};

struct PairElements {
  using Element = std::uint32_t;
  using Weight = BFloat16;
  static constexpr int kSteps = 2;
  static constexpr bool kTiled = false;
  static constexpr int kDepthUnit = 1;
  struct Registers {};
  static Floats multiply_add(Floats sum, std::uint32_t a, Floats b) { return dot_pairs(sum, Words{} + a, (Words)b); }
};

#if defined(__AMX_BF16__)
// Pairs that are multiplied in tile registers.
struct TileElements {
  using Element = std::uint32_t;
  using Weight = BFloat16;
  static constexpr int kSteps = 2;
  static constexpr bool kTiled = true;
  static constexpr int kDepthUnit = kTileWords;
  using Registers = TileRegisters;
};
#else
using TileElements = PairElements;
#endif

// What tiles of inputs of type T multiply.
template <class T>
using ElementsOf = std::conditional_t<!std::is_same_v<T, BFloat16> || !kHasBf16Dot, FloatElements,
                                      std::conditional_t<kHasTiles, TileElements, PairElements>>;

// c[i][j] = (kScaled ? factor[i] * c[i][j] : 0) + sum over k < steps of a[i][k] * b[k][j], for kTileRows rows and kVectors * kLanes
// columns. b is a panel of that width. Row strides in elements.
template <class Elements, int kVectors, bool kScaled>
  requires(!Elements::kTiled)
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

#if defined(__AMX_BF16__)
// The same in tile registers; steps are a multiple of kTileWords.
template <class Elements, int kVectors, bool kScaled>
  requires(Elements::kTiled)
inline void multiply_tile(const typename Elements::Element* a, std::ptrdiff_t a_row, const typename Elements::Element* b,
                          std::ptrdiff_t steps, float* c, std::ptrdiff_t c_row, const float* factor) {
  constexpr std::int64_t kLine = kVectors * kTileRowBytes;
  const auto c_stride = c_row * static_cast<std::int64_t>(sizeof(float));
  if constexpr (kScaled) {
    for (int i = 0; i < kTileRows; ++i) {
      unrolled<kVectors>([&](auto j) __attribute__((always_inline)) {
        auto* to = c + i * c_row + j * kLanes;
        write(to, factor[i] * read(to));
      });
    }
  }
  order_tile_memory(c);
  if constexpr (kScaled) {
    load_tile_sums<1, kVectors>(c, c_stride);
  } else {
    clear_tile_sums<1, kVectors>();
  }
  for (std::ptrdiff_t k = 0; k < steps; k += kTileWords) {
    add_tile_products<1, kVectors>(a + k, a_row * static_cast<std::int64_t>(sizeof(std::uint32_t)), b + k * kVectors * kLanes, kLine);
  }
  store_tile_sums<1, kVectors>(c, c_stride);
  order_tile_memory(c);
}
#endif

}  // namespace
}  // namespace neuron::kernels
