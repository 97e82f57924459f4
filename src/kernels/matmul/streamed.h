// Some tens of rows of A times a weight [N, K]: rows of the weight are used where they are and read once, A is the packed panel.
// The tile is that of blocked.h with the operands exchanged, so its sums are transposed before they are finished.
#pragma once

#include <algorithm>

#include "kernels/isa/cache.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/pack.h"
#include "kernels/matmul/tile.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

// Columns of C that are finished together.
constexpr std::int64_t kStrip = 4 * kTileRows;

// Rows of an operand as words.
struct Rows {
  const std::uint32_t* words;
  std::int64_t stride;
};

// Whether rows can be read where they are. Lines at a distance of a multiple of 4096 bytes fall into one set of the first level cache,
// whose ways may be fewer than the rows of a tile.
template <class Format>
bool usable_rows(const Operand<Format>& operand, std::int64_t k) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename Format::Element));
  return Format::kPlain && operand.k_stride == 1 && operand.row_stride % Format::kStep == 0 && k % Format::kStep == 0 &&
         (operand.row_stride * kSize % 4096 != 0 || first_level_ways() >= kTileRows);
}

// A distance between copied rows that spreads them over the sets of the caches.
inline std::int64_t row_distance(std::int64_t words) { return round_up(words, 16) + (round_up(words, 16) % 32 == 0 ? 16 : 0); }

// Rows that cannot be used where they are, are copied in parts that stay in the first level cache.
constexpr std::int64_t kCopiedWords = 256;

// A matrix that is multiplied by the panels of A: the weight or its gate.
template <class Format>
struct Streamed {
  Operand<Format> operand;
  bool in_place;
  float* sums;  // [panel][column of the strip][lane]
};

struct Panels {
  const std::uint32_t* words;
  std::int64_t rows;  // of A
  std::int64_t k;
};

// Columns [column, column + count) of the weight times panels of kVectors vectors; `copy` is room for copied rows.
template <class Format, int kVectors>
void stream_columns(const Streamed<Format>& weight, std::int64_t column, std::int64_t count, const Panels& panels, std::uint32_t* copy) {
  const auto words = words_of<Format>(panels.k);
  const auto part = weight.in_place ? std::max<std::int64_t>(words, 1) : kCopiedWords;
  for (std::int64_t first = 0; first < count; first += kTileRows) {
    const auto height = std::min<std::int64_t>(kTileRows, count - first);
    // While the first panel is computed, the rows of the next tile are fetched.
    const auto address = [&](std::int64_t row) { return reinterpret_cast<const char*>(weight.operand.at(column + first + row, 0)); };
    Prefetch prefetch{address(kTileRows), 64, address(2 * kTileRows)};
    // Once at least: without a word the sums are zeros.
    for (std::int64_t word = 0; word == 0 || word < words; word += part) {
      const auto width = std::min(part, words - word);
      Rows rows{reinterpret_cast<const std::uint32_t*>(weight.operand.data) + (column + first) * weight.operand.row_stride / Format::kStep,
                weight.operand.row_stride / Format::kStep};
      if (!weight.in_place) {
        const auto begin = word * Format::kStep;
        pack<Format, Packed::kRows>(weight.operand, column + first, height, begin, std::min(panels.k - begin, width * Format::kStep), copy,
                                    row_distance(kCopiedWords));
        rows = {copy, row_distance(kCopiedWords)};
      }
      for (std::int64_t panel = 0; panel * kPanelWidth < panels.rows; ++panel) {
        multiply_rows<Format, kVectors, 3>(rows.words, rows.stride, height, panels.words + (panel * words + word) * kPanelWidth, width,
                                           weight.sums + (panel * kStrip + first) * kPanelWidth, word != 0, prefetch);
      }
    }
  }
}

template <class Format>
void stream_strip(const Streamed<Format>& weight, std::int64_t column, std::int64_t count, const Panels& panels, std::uint32_t* copy) {
  if (panels.rows <= kLanes) {
    stream_columns<Format, 1>(weight, column, count, panels, copy);
  } else {
    stream_columns<Format, 2>(weight, column, count, panels, copy);
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
  const Finisher finisher(problem);
  const bool b_in_place = usable_rows(b, problem.k);
  const bool gate_in_place = gate.data != nullptr && usable_rows(gate, problem.k);
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(problem.n, kTileRows, member, count);
    const Panels all{packed, problem.m, problem.k};
    auto* copy = static_cast<std::uint32_t*>(
        scratch(Scratch::kRows, kTileRows * row_distance(kCopiedWords) * static_cast<std::int64_t>(sizeof(std::uint32_t))));
    constexpr auto kTransposed = kStripWidth * kPanelWidth;
    const auto sums_size = panels * kStrip * kPanelWidth + kTransposed;
    auto* sums = static_cast<float*>(scratch(Scratch::kTile, 2 * sums_size * sizeof(float)));
    auto* gates = sums + sums_size;
    auto* transposed = static_cast<float*>(scratch(Scratch::kTransposed, 2 * kTransposed * sizeof(float)));
    for (auto column = begin; column < end; column += kStrip) {
      const auto width = std::min(kStrip, end - column);
      stream_strip<Format>({b, b_in_place, sums}, column, width, all, copy);
      if (gate.data != nullptr) {
        stream_strip<Format>({gate, gate_in_place, gates}, column, width, all, copy);
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
