// Some tens of rows of A times a weight [N, K]: rows of the weight are used where they are and read once, A is the packed panel.
// The tile is that of blocked.h with the operands exchanged, so its sums are transposed before they are finished.
#pragma once

#include <algorithm>

#include "kernels/matmul/finish.h"
#include "kernels/matmul/pack.h"
#include "kernels/matmul/tile.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

// Columns of C that are finished together.
constexpr std::int64_t kStrip = 4 * kTileRows;

// Rows of an operand as words: where they are, if that is possible and good, else as a copy of a part of them.
template <class Format>
struct Rows {
  const std::uint32_t* words;
  std::int64_t stride;
};

// Whether rows can be read in place. Lines at a multiple of 4096 bytes fall into one set of the first level cache.
template <class Format>
bool usable_rows(const Operand<Format>& operand, std::int64_t k) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename Format::Element));
  return Format::kPlain && operand.k_stride == 1 && operand.row_stride % Format::kStep == 0 && k % Format::kStep == 0 &&
         operand.row_stride * kSize % 4096 != 0;
}

template <class Format>
Rows<Format> rows_at(const Operand<Format>& operand, std::int64_t row, std::int64_t rows, std::int64_t k, bool in_place, std::uint32_t* copy,
                     std::int64_t copy_stride) {
  if (in_place) {
    return {reinterpret_cast<const std::uint32_t*>(operand.at(row, 0)), operand.row_stride / Format::kStep};
  }
  pack<Format, Packed::kRows>(operand, row, rows, 0, k, copy, copy_stride);
  return {copy, copy_stride};
}

// A distance between rows that spreads them over the sets of the caches.
inline std::int64_t row_distance(std::int64_t words) { return round_up(words, 16) + (round_up(words, 16) % 32 == 0 ? 16 : 0); }

// sums[panel][row of the strip][lane] for rows [column, column + count) of one weight.
template <class Format>
void stream_strip(const Operand<Format>& weight, std::int64_t column, std::int64_t count, std::int64_t k, const std::uint32_t* panels,
                  std::int64_t m, bool in_place, std::uint32_t* copy, float* sums) {
  const auto words = words_of<Format>(k);
  for (std::int64_t first = 0; first < count; first += kTileRows) {
    const auto height = std::min<std::int64_t>(kTileRows, count - first);
    const auto rows = rows_at<Format>(weight, column + first, height, k, in_place, copy, row_distance(words));
    // While the first panel is computed, the rows of the next tile are fetched.
    Prefetch prefetch{reinterpret_cast<const char*>(weight.at(column + first + kTileRows, 0)), 64,
                      reinterpret_cast<const char*>(weight.at(column + first + 2 * kTileRows, 0))};
    for (std::int64_t panel = 0; panel * kPanelWidth < m; ++panel) {
      const auto* packed = panels + panel * words * kPanelWidth;
      auto* to = sums + (panel * kStrip + first) * kPanelWidth;
      if (m - panel * kPanelWidth > kLanes) {
        multiply_rows<Format, 2, 3>(rows.words, rows.stride, height, packed, words, to, false, prefetch);
      } else {
        multiply_rows<Format, 1, 3>(rows.words, rows.stride, height, packed, words, to, false, prefetch);
      }
    }
  }
}

// [kStrip, kPanelWidth] to [kPanelWidth, kStrip rounded up to whole vectors].
constexpr std::int64_t kStripWidth = (kStrip + kLanes - 1) / kLanes * kLanes;
inline void transpose_strip(const float* from, float* to) {
  for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
    for (std::int64_t row = 0; row < kStripWidth; row += kLanes) {
      Floats square[kLanes];
      load_lines(square, from + row * kPanelWidth + lane, kPanelWidth * sizeof(float), kIndices<kLanes>);
      transpose(square);
      store_lines(square, to + lane * kStripWidth + row, kStripWidth * sizeof(float), kLanes, kIndices<kLanes>);
    }
  }
}

template <class Format>
void multiply_streamed(const Matmul& problem, const Operand<Format>& a, const Operand<Format>& b, const Operand<Format>& gate,
                       Threads& threads) {
  const auto words = words_of<Format>(problem.k);
  const auto panels = (problem.m + kPanelWidth - 1) / kPanelWidth;
  auto* packed = static_cast<std::uint32_t*>(scratch(Scratch::kShared, panels * kPanelWidth * words * sizeof(std::uint32_t)));
  threads.run([&](int member, int count) {
    // Shares of k, as there may be one panel only.
    const auto [begin, end] = share_of(words, kLanes, member, count);
    for (std::int64_t panel = 0; panel < panels && begin < end; ++panel) {
      const auto first = begin * Format::kStep;
      pack<Format, Packed::kColumns>(a, panel * kPanelWidth, std::min<std::int64_t>(kPanelWidth, problem.m - panel * kPanelWidth), first,
                                     std::min(problem.k, end * Format::kStep) - first, packed + (panel * words + begin) * kPanelWidth,
                                     kPanelWidth);
    }
  });
  const bool b_in_place = usable_rows(b, problem.k);
  const bool gate_in_place = gate.data != nullptr && usable_rows(gate, problem.k);
  const Finisher finisher(problem);
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(problem.n, kTileRows, member, count);
    auto* copy = static_cast<std::uint32_t*>(scratch(Scratch::kRows, kTileRows * row_distance(words) * sizeof(std::uint32_t)));
    const auto sums_size = panels * kStripWidth * kPanelWidth;
    auto* sums = static_cast<float*>(scratch(Scratch::kTile, 2 * (sums_size + kStripWidth * kPanelWidth) * sizeof(float)));
    auto* gates = sums + sums_size + kStripWidth * kPanelWidth;
    constexpr auto kTransposed = kStripWidth * kPanelWidth;
    auto* transposed = static_cast<float*>(scratch(Scratch::kTransposed, 2 * kTransposed * sizeof(float)));
    for (auto column = begin; column < end; column += kStrip) {
      const auto width = std::min(kStrip, end - column);
      stream_strip<Format>(b, column, width, problem.k, packed, problem.m, b_in_place, copy, sums);
      if (gate.data != nullptr) {
        stream_strip<Format>(gate, column, width, problem.k, packed, problem.m, gate_in_place, copy, gates);
      }
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        transpose_strip(sums + panel * kStrip * kPanelWidth, transposed);
        if (gate.data != nullptr) {
          transpose_strip(gates + panel * kStrip * kPanelWidth, transposed + kTransposed);
        }
        const auto row = panel * kPanelWidth;
        finisher.finish(row, std::min<std::int64_t>(kPanelWidth, problem.m - row), column, width, transposed,
                        gate.data != nullptr ? transposed + kTransposed : nullptr, kStripWidth);
      }
    }
  });
}

}  // namespace
}  // namespace neuron::kernels
