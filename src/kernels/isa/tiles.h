// AMX: eight tile registers of 16 rows of 64 bytes, and products of tiles of bfloat16 pairs. Only for the translation units
// <kernel>_amx.cpp.
//
// Registers 0 to 3 hold sums (two tiles of rows by two vectors), 4 and 5 rows of the left operand, 6 and 7 lines of a panel: sixteen words
// along k of each. Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and TDPBF16PS in
// volume 2.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace neuron::kernels {
namespace {

constexpr int kTileHeight = 16;  // rows of a register
constexpr int kTileWords = 16;   // 32-bit words of one of its rows
constexpr int kTileRowBytes = 64;

// g++ 12 does not know what memory LDTILECFG reads, nor that loads and stores of tiles touch memory: `memory` is complete before, and none
// of the accesses to it is moved across.
[[gnu::always_inline]] inline void order_tile_memory(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// The shapes of the registers as LDTILECFG reads them.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  // For `height` rows, 1 to 2 * kTileHeight, of sums and left operand.
  explicit TileShapes(std::int64_t height) {
    const auto first = static_cast<std::uint8_t>(std::min<std::int64_t>(height, kTileHeight));
    // A register may not be empty; a second one that is not used has one row.
    const auto second = static_cast<std::uint8_t>(std::max<std::int64_t>(height - kTileHeight, 1));
    const std::uint8_t all[8] = {first, first, second, second, first, second, kTileWords, kTileWords};
    for (int i = 0; i < 8; ++i) {
      row_bytes[i] = kTileRowBytes;
      rows[i] = all[i];
    }
  }
};
static_assert(sizeof(TileShapes) == 64);

// The tile registers of this thread, in use while this lives: whole tiles, but for the calls of with_height(). Unused registers are
// released, since the system saves and restores them with the thread.
class TileRegisters {
 public:
  TileRegisters() { shape(2 * kTileHeight); }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  // Runs `body` with registers of `height` rows. Their contents are lost.
  template <class Body>
  static void with_height(std::int64_t height, const Body& body) {
    shape(height);
    body();
    shape(2 * kTileHeight);
  }

 private:
  static void shape(std::int64_t height) {
    const TileShapes shapes(height);
    order_tile_memory(&shapes);
    _tile_loadconfig(&shapes);
  }
};

// The four sums: left as zeros, or loaded from (stored to) rows at a distance of `stride` bytes, kVectors registers side by side.
template <int kHigh, int kVectors>
[[gnu::always_inline]] inline void clear_tile_sums() {
  _tile_zero(0);
  if constexpr (kVectors == 2) _tile_zero(1);
  if constexpr (kHigh == 2) _tile_zero(2);
  if constexpr (kHigh == 2 && kVectors == 2) _tile_zero(3);
}
template <int kHigh, int kVectors>
[[gnu::always_inline]] inline void load_tile_sums(const float* from, std::int64_t stride) {
  const auto* below = reinterpret_cast<const char*>(from) + kTileHeight * stride;
  _tile_loadd(0, from, stride);
  if constexpr (kVectors == 2) _tile_loadd(1, from + kTileWords, stride);
  if constexpr (kHigh == 2) _tile_loadd(2, below, stride);
  if constexpr (kHigh == 2 && kVectors == 2) _tile_loadd(3, below + kTileRowBytes, stride);
}
template <int kHigh, int kVectors>
[[gnu::always_inline]] inline void store_tile_sums(float* to, std::int64_t stride) {
  auto* below = reinterpret_cast<char*>(to) + kTileHeight * stride;
  _tile_stored(0, to, stride);
  if constexpr (kVectors == 2) _tile_stored(1, to + kTileWords, stride);
  if constexpr (kHigh == 2) _tile_stored(2, below, stride);
  if constexpr (kHigh == 2 && kVectors == 2) _tile_stored(3, below + kTileRowBytes, stride);
}

// sums += left * right for sixteen words along k: `left` has rows at a distance of left_stride bytes, `right` a line of kVectors * 16 pairs
// for each word, at a distance of right_stride bytes.
template <int kHigh, int kVectors>
[[gnu::always_inline]] inline void add_tile_products(const void* left, std::int64_t left_stride, const void* right,
                                                     std::int64_t right_stride) {
  _tile_loadd(6, right, right_stride);
  if constexpr (kVectors == 2) _tile_loadd(7, static_cast<const char*>(right) + kTileRowBytes, right_stride);
  _tile_loadd(4, left, left_stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kVectors == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kHigh == 2) {
    _tile_loadd(5, static_cast<const char*>(left) + kTileHeight * left_stride, left_stride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kVectors == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

}  // namespace
}  // namespace neuron::kernels
