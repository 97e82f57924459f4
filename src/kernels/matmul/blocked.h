// Many rows of A times many columns of B, any strides: panels of B are packed by each thread into its second level cache, rows of A are
// used where they are or packed once for all threads.
#pragma once

#include <algorithm>

#include "kernels/matmul/streamed.h"

namespace neuron::kernels {
namespace {

// The packed panels of B that are in use: they and as much to come should fit a second level cache of 1 MiB.
constexpr std::int64_t kBlockWords = std::int64_t{1} << 16;
// Sums of a longer k are kept in memory between its parts.
constexpr std::int64_t kLongestPart = 4096;
// Rows of A that are worked on together when sums are kept, or A is packed.
constexpr std::int64_t kMostRows = 40 * kTileRows;

// What one member computes: a part of the grid of C.
struct Region {
  Share rows;
  Share columns;
};

// Columns are divided first: then each weight is read by one thread.
inline Region region_of(std::int64_t rows, std::int64_t columns, int member, int count) {
  int across = count;
  const auto panels = (columns + kPanelWidth - 1) / kPanelWidth;
  while (across > panels || count % across != 0) {
    --across;
  }
  const int down = count / across;
  return {share_of(rows, kTileRows, member / across, down), share_of(columns, kPanelWidth, member % across, across)};
}

template <class Format>
class Blocked {
 public:
  Blocked(const Matmul& problem, const Operand<Format>& a, const Operand<Format>& b, const Operand<Format>& gate, Threads& threads)
      : problem_(problem), finisher_(problem), a_(a), weights_{b, gate}, threads_(threads) {}

  void multiply() {
    const auto words = words_of<Format>(problem_.k);
    const auto parts = std::max<std::int64_t>(1, (words + kLongestPart - 1) / kLongestPart);
    part_ = round_up(std::max<std::int64_t>(1, (words + parts - 1) / parts), kLanes) * Format::kStep;
    in_place_ = usable_rows(a_, problem_.k);
    // Packed A, or sums, of all rows would take memory without limit.
    const auto most_rows = in_place_ && parts == 1 ? problem_.m : kMostRows;
    for (std::int64_t row = 0; row < problem_.m; row += most_rows) {
      const Share rows{row, std::min(problem_.m, row + most_rows)};
      packed_stride_ = row_distance(words);
      if (!in_place_) {
        pack_rows(rows);
      }
      first_row_ = row;
      threads_.run([&](int member, int count) {
        auto region = region_of(rows.end - rows.begin, problem_.n, member, count);
        region.rows.begin += rows.begin;
        region.rows.end += rows.begin;
        compute(region);
      });
    }
  }

 private:
  static constexpr int kWeights = 2;

  void pack_rows(Share rows) {
    packed_ = static_cast<std::uint32_t*>(scratch(Scratch::kShared, kMostRows * packed_stride_ * sizeof(std::uint32_t)));
    threads_.run([&](int member, int count) {
      const auto [begin, end] = share_of(rows.end - rows.begin, kLanes, member, count);
      if (begin < end) {
        pack<Format, Packed::kRows>(a_, rows.begin + begin, end - begin, 0, problem_.k, packed_ + begin * packed_stride_, packed_stride_);
      }
    });
  }

  const std::uint32_t* row_words(std::int64_t row, std::int64_t k) const {
    return in_place_ ? reinterpret_cast<const std::uint32_t*>(a_.at(row, k))
                     : packed_ + (row - first_row_) * packed_stride_ + k / Format::kStep;
  }

  // What a member works with: its panels and its sums.
  struct Workspace {
    int weights;
    std::uint32_t* panels;
    std::int64_t weight_words;  // words of the panels of one weight
    float* sums;
    std::int64_t weight_sums;  // sums of one weight
    bool kept;                 // whether there are sums for all rows, or for one tile
  };

  void compute(const Region& region) const {
    const auto height = region.rows.end - region.rows.begin;
    if (height <= 0 || region.columns.begin >= region.columns.end) {
      return;
    }
    Workspace space{};
    space.weights = weights_[1].data != nullptr ? 2 : 1;
    space.kept = part_ < problem_.k;
    const auto part_words = words_of<Format>(std::min(part_, problem_.k));
    const auto fitting = kBlockWords / std::max<std::int64_t>(1, part_words * space.weights) / kPanelWidth * kPanelWidth;
    const auto needed = round_up(region.columns.end - region.columns.begin, kPanelWidth);
    const auto width = space.kept ? kPanelWidth : std::clamp<std::int64_t>(fitting, kPanelWidth, needed);
    space.weight_words = width * part_words;
    space.panels = static_cast<std::uint32_t*>(scratch(Scratch::kPanel, (space.weights * space.weight_words + 1) * sizeof(std::uint32_t)));
    space.weight_sums = (space.kept ? round_up(height, kTileRows) : kTileRows) * kPanelWidth;
    space.sums = static_cast<float*>(scratch(Scratch::kTile, space.weights * space.weight_sums * sizeof(float)));
    for (auto column = region.columns.begin; column < region.columns.end; column += width) {
      const Share columns{column, std::min(region.columns.end, column + width)};
      for (std::int64_t k = 0; k == 0 || k < problem_.k; k += part_) {
        const auto count = std::min(part_, problem_.k - k);
        for (int weight = 0; weight < space.weights; ++weight) {
          pack_panels(weights_[weight], columns, k, count, space.panels + weight * space.weight_words);
        }
        multiply_block(region.rows, columns, k, count, space);
      }
    }
  }

  void pack_panels(const Operand<Format>& weight, const Share& columns, std::int64_t k, std::int64_t count, std::uint32_t* panels) const {
    const auto words = words_of<Format>(count);
    for (auto column = columns.begin; column < columns.end; column += kPanelWidth) {
      pack<Format, Packed::kColumns>(weight, column, std::min<std::int64_t>(kPanelWidth, columns.end - column), k, count, panels,
                                     kPanelWidth);
      panels += words * kPanelWidth;
    }
  }

  // What the next block packs, in the order of memory.
  Prefetch prefetch_after(const Share& columns, std::int64_t k, std::int64_t count) const {
    const auto& weight = weights_[0];
    const bool same_columns = k + count < problem_.k;
    const auto column = same_columns ? columns.begin : columns.end;
    const auto begin_k = same_columns ? k + count : 0;
    const auto address = [&](std::int64_t c, std::int64_t i) { return reinterpret_cast<const char*>(weight.at(c, i)); };
    if (weight.k_stride == 1) {
      return {address(column, begin_k), 64, address(column + columns.end - columns.begin, begin_k)};
    }
    return {address(column, begin_k), weight.k_stride * static_cast<std::int64_t>(sizeof(typename Format::Element)),
            address(column, begin_k + count)};
  }

  void multiply_block(const Share& rows, const Share& columns, std::int64_t k, std::int64_t count, const Workspace& space) const {
    const auto words = words_of<Format>(count);
    const bool last = k + count >= problem_.k;
    const auto stride = in_place_ ? a_.row_stride / Format::kStep : packed_stride_;
    auto prefetch = prefetch_after(columns, k, count);
    for (auto row = rows.begin; row < rows.end; row += kTileRows) {
      const auto height = std::min<std::int64_t>(kTileRows, rows.end - row);
      for (auto column = columns.begin; column < columns.end; column += kPanelWidth) {
        const auto width = std::min<std::int64_t>(kPanelWidth, columns.end - column);
        auto* tile = space.sums + (space.kept ? (row - rows.begin) * kPanelWidth : 0);
        for (int weight = 0; weight < space.weights; ++weight) {
          const auto* panel = space.panels + weight * space.weight_words + (column - columns.begin) * words;
          auto* to = tile + weight * space.weight_sums;
          if (width > kLanes) {
            multiply_rows<Format, 2, 1>(row_words(row, k), stride, height, panel, words, to, k != 0, prefetch);
          } else {
            multiply_rows<Format, 1, 1>(row_words(row, k), stride, height, panel, words, to, k != 0, prefetch);
          }
        }
        if (last) {
          finisher_.finish(row, height, column, width, tile, space.weights == 2 ? tile + space.weight_sums : nullptr, kPanelWidth);
        }
      }
    }
  }

  const Matmul& problem_;
  const Finisher finisher_;
  const Operand<Format> a_;
  const Operand<Format> weights_[kWeights];
  Threads& threads_;
  bool in_place_ = false;
  std::int64_t part_ = 0;  // elements along k
  std::uint32_t* packed_ = nullptr;
  std::int64_t packed_stride_ = 0;
  std::int64_t first_row_ = 0;  // of those that are packed
};

}  // namespace
}  // namespace neuron::kernels
