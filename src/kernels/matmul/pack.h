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

template <class Format, int... kIndex>
[[gnu::always_inline]] inline void read_rows(Words (&square)[kLanes], const typename Format::Element* from, std::int64_t distance,
                                             std::int64_t height, std::integer_sequence<int, kIndex...>) {
  if (height == kLanes) {
    ((square[kIndex] = Format::along(from + kIndex * distance)), ...);
  } else {  // the last row stands for those that are not there
    ((square[kIndex] = Format::along(from + (kIndex < height ? kIndex : height - 1) * distance)), ...);
  }
}

template <class Format, int... kIndex>
[[gnu::always_inline]] inline void read_words(Words (&square)[kLanes], const typename Format::Element* from, std::int64_t distance,
                                              std::integer_sequence<int, kIndex...>) {
  ((square[kIndex] = Format::across(from + kIndex * Format::kStep * distance, from + (kIndex * Format::kStep + 1) * distance)), ...);
}

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
      const bool whole = begin + kSquare <= count;
      Words square[kLanes];
      bool has_rows = true;  // square[i] is row i; else word i
      if (whole && from.k_stride == 1) {
        read_rows<Format>(square, from.at(row + r, k + begin), from.row_stride, height, kIndices<kLanes>);
      } else if (whole && height == kLanes && from.row_stride == 1) {
        read_words<Format>(square, from.at(row + r, k + begin), from.k_stride, kIndices<kLanes>);
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
        read_rows<Format>(square, edge, kSquare, kLanes, kIndices<kLanes>);
      }
      if (has_rows != (kPacked == Packed::kRows)) {
        transpose(square);
      }
      auto* to = kPacked == Packed::kRows ? out + r * stride + w : out + w * stride + r;
      const auto lines = kPacked == Packed::kRows ? height : std::min<std::int64_t>(kLanes, words - w);
      store_lines(square, to, stride * static_cast<std::int64_t>(sizeof(std::uint32_t)), lines, kIndices<kLanes>);
    }
  }
}

}  // namespace
}  // namespace neuron::kernels
