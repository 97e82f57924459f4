// Copies a part of an operand into the layout of the inner loops, converted to words.
#pragma once

#include <algorithm>

#include "kernels/matmul/formats.h"

namespace neuron::kernels {
namespace {

enum class Packed {
  kRows,     // out[row * stride + word]
  kColumns,  // out[word * stride + row]
};

// Packs rows [row, row + rows) and elements [k, k + count) along k. Works on squares of kLanes words: rows beyond `rows` are rubbish (in
// kColumns) or left alone (in kRows), words beyond the last up to a multiple of kLanes are zero in kRows and left alone in kColumns.
template <class Format, Packed kPacked>
void pack(const Operand<Format>& from, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t count, std::uint32_t* out,
          std::int64_t stride) {
  using Element = typename Format::Element;
  constexpr std::int64_t kSquare = std::int64_t{kLanes} * Format::kStep;  // elements of a square along k
  const auto words = words_of<Format>(count);
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    const auto height = std::min<std::int64_t>(kLanes, rows - r);
    for (std::int64_t w = 0; w < words; w += kLanes) {
      const auto begin = w * Format::kStep;
      const bool whole = height == kLanes && begin + kSquare <= count;
      Words square[kLanes];
      bool has_rows = true;  // square[i] is row i; else word i
      if (whole && from.k_stride == 1) {
        const auto* p = from.at(row + r, k + begin);
        unrolled<kLanes>([&](auto i) __attribute__((always_inline)) { square[i] = Format::along(p + i * from.row_stride); });
      } else if (whole && from.row_stride == 1) {
        const auto* p = from.at(row + r, k + begin);
        unrolled<kLanes>([&](auto i) __attribute__((always_inline)) {
          const auto* at = p + i * Format::kStep * from.k_stride;
          square[i] = Format::across(at, at + from.k_stride);
        });
        has_rows = false;
      } else {
        alignas(64) Element edge[kLanes * kSquare] = {};
        const auto width = std::min(kSquare, count - begin);
        for (std::int64_t i = 0; i < height; ++i) {
          const auto* p = from.at(row + r + i, k + begin);
          for (std::int64_t j = 0; j < width; ++j) {
            edge[i * kSquare + j] = p[j * from.k_stride];
          }
        }
        unrolled<kLanes>([&](auto i) __attribute__((always_inline)) { square[i] = Format::along(edge + i * kSquare); });
      }
      if (has_rows != (kPacked == Packed::kRows)) {
        transpose(square);
      }
      auto* to = kPacked == Packed::kRows ? out + r * stride + w : out + w * stride + r;
      const auto lines = kPacked == Packed::kRows ? height : std::min<std::int64_t>(kLanes, words - w);
      if (lines == kLanes) {
        unrolled<kLanes>([&](auto i) __attribute__((always_inline)) { store(to + i * stride, square[i]); });
      } else {
        unrolled<kLanes>([&](auto i) __attribute__((always_inline)) {
          if (i < lines) {
            store(to + i * stride, square[i]);
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace neuron::kernels
