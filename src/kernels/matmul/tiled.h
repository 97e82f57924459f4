// Products of bfloat16 matrices in AMX tile registers. Rows of the weight are used where they are, A is packed into panels of 32 rows.
//
// As in streamed.h the weight's rows are the left operand, so sums are those of C transposed. A block of the weight (kBlockColumns rows by
// kPart words) stays in the second level cache while all panels of A pass by, and the next block is fetched meanwhile.
#pragma once

#include <algorithm>

#include "kernels/isa/tiles.h"
#include "kernels/matmul/finish.h"
#include "kernels/matmul/pack.h"
#include "kernels/matmul/streamed.h"
#include "kernels/matmul/tile.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

static_assert(kPanelWidth == 2 * kTileWords && kLanes == kTileWords);

constexpr std::int64_t kTileColumns = 2 * kTileHeight;    // of C, that are computed together
constexpr std::int64_t kBlockColumns = 4 * kTileColumns;  // columns of C in a block
constexpr std::int64_t kPart = 512;                       // words along k in a block
constexpr std::int64_t kChunk = 128;                      // words of a panel that stay in the first level cache, beside a block's sums
constexpr std::int64_t kPanelRows = 512;                  // rows of C whose panels are packed at once
constexpr std::int64_t kLineBytes = 64;

// Walks through the lines of a block of rows, some of them at each step.
class BlockPrefetch {
 public:
  BlockPrefetch() = default;
  BlockPrefetch(const void* first, std::int64_t rows, std::int64_t row_bytes, std::int64_t stride, std::int64_t steps)
      : next_(static_cast<const char*>(first)), stride_(stride), row_lines_((row_bytes + kLineBytes - 1) / kLineBytes), rows_(rows) {
    each_ = (rows * row_lines_ + steps - 1) / std::max<std::int64_t>(steps, 1);
  }

  [[gnu::always_inline]] void step() {
    for (auto count = rows_ > 0 ? each_ : 0; count > 0; --count) {
      __builtin_prefetch(next_ + line_ * kLineBytes, 0, 2);
      if (++line_ == row_lines_) {
        line_ = 0;
        next_ += stride_;
        --rows_;
      }
    }
  }

 private:
  const char* next_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t row_lines_ = 1;
  std::int64_t rows_ = 0;  // left
  std::int64_t each_ = 0;
  std::int64_t line_ = 0;
};

// sums[row * kPanelWidth + lane] (+)= products over `words` words, a multiple of kTileWords, of rows[row * stride + word] and
// panel[word * kPanelWidth + lane], for as many rows as the registers are shaped for.
template <int kHigh, int kVectors>
[[gnu::noinline]] void multiply_in_registers(const Rows& rows, const std::uint32_t* panel, std::int64_t words, float* sums, bool add,
                                             BlockPrefetch& prefetch) {
  constexpr std::int64_t kLine = kPanelWidth * sizeof(float);
  const auto stride = rows.stride * static_cast<std::int64_t>(sizeof(std::uint32_t));
  auto ahead = prefetch;
  order_tile_memory(sums);
  if (add) {
    load_tile_sums<kHigh, kVectors>(sums, kLine);
  } else {
    clear_tile_sums<kHigh, kVectors>();
  }
  for (std::int64_t word = 0; word < words; word += kTileWords) {
    add_tile_products<kHigh, kVectors>(rows.words + word, stride, panel + word * kPanelWidth, kLine);
    ahead.step();
  }
  store_tile_sums<kHigh, kVectors>(sums, kLine);
  order_tile_memory(sums);
  prefetch = ahead;
}

template <int kVectors>
void multiply_columns(const Rows& rows, std::int64_t count, const std::uint32_t* panel, std::int64_t words, float* sums, bool add,
                      BlockPrefetch& prefetch) {
  const auto whole = words / kTileWords * kTileWords;
  if (whole == 0) {
  } else if (count == kTileColumns) {
    multiply_in_registers<2, kVectors>(rows, panel, whole, sums, add, prefetch);
  } else if (count > kTileHeight) {
    TileRegisters::with_height(count, [&] { multiply_in_registers<2, kVectors>(rows, panel, whole, sums, add, prefetch); });
  } else {
    TileRegisters::with_height(count, [&] { multiply_in_registers<1, kVectors>(rows, panel, whole, sums, add, prefetch); });
  }
  if (whole < words || whole == 0) {  // without a word the sums are zeros
    Prefetch none{reinterpret_cast<const char*>(panel), 0, nullptr};
    multiply_rows<PairFormat, kVectors, 1>(rows.words + whole, rows.stride, count, panel + whole * kPanelWidth, words - whole, sums,
                                           add || whole > 0, none);
  }
}

class Tiled {
 public:
  explicit Tiled(const Matmul& problem)
      : problem_(problem),
        finisher_(problem),
        a_{elements(problem.a), problem.a.row_stride, problem.a.column_stride},
        weights_{{elements(problem.b), problem.b.column_stride, problem.b.row_stride},
                 {elements(problem.gate), problem.gate.column_stride, problem.gate.row_stride}},
        count_(problem.gate.data != nullptr ? 2 : 1),
        words_(words_of<PairFormat>(problem.k)) {}

  void multiply(Threads& threads) {
    for (std::int64_t first = 0; first < problem_.m; first += kPanelRows) {
      first_ = first;
      rows_ = std::min(kPanelRows, problem_.m - first);
      panels_ = static_cast<std::uint32_t*>(
          scratch(Scratch::kShared, round_up(rows_, kPanelWidth) * words_ * static_cast<std::int64_t>(sizeof(std::uint32_t))));
      threads.run([&](int member, int count) { pack_panels(share_of(words_, kLanes, member, count)); });
      threads.run([&](int member, int count) { multiply_share(share_of(problem_.n, kTileColumns, member, count)); });
    }
  }

 private:
  static const std::uint16_t* elements(const MatrixView& view) { return static_cast<const std::uint16_t*>(view.data); }

  static bool in_place(const Operand<PairFormat>& weight, std::int64_t k) {
    return weight.k_stride == 1 && weight.row_stride % PairFormat::kStep == 0 && k % PairFormat::kStep == 0;
  }

  std::uint32_t* panel_at(std::int64_t row, std::int64_t word) const { return panels_ + row * words_ + word * kPanelWidth; }

  void pack_panels(const Share& words) const {
    const auto k = words.begin * PairFormat::kStep;
    const auto count = std::min(problem_.k, words.end * PairFormat::kStep) - k;
    for (std::int64_t row = 0; row < rows_ && count > 0; row += kPanelWidth) {
      pack<PairFormat, Packed::kColumns>(a_, first_ + row, std::min<std::int64_t>(kPanelWidth, rows_ - row), k, count,
                                         panel_at(row, words.begin), kPanelWidth);
    }
  }

  // Columns of C and words along k that are worked on together.
  struct Block {
    Share columns;
    Share words;
  };

  // What a member works with.
  struct Workspace {
    std::uint32_t* copies[2];  // of rows of a weight that cannot be used where they are: [kBlockColumns, row_distance(kPart)]
    float* sums[2];            // [panel, kBlockColumns, kPanelWidth]
    float* transposed[2];      // [kPanelWidth, kBlockColumns]
    Rows rows[2];              // of the current block
    BlockPrefetch next[2];
  };

  void multiply_share(const Share& columns) const {
    if (columns.begin >= columns.end) {
      return;
    }
    const TileRegisters registers;
    Workspace space{};
    const auto copies = kBlockColumns * row_distance(kPart);
    const auto sums = (words_ > kPart ? round_up(rows_, kPanelWidth) : kPanelWidth) * kBlockColumns;
    constexpr auto kTransposed = kBlockColumns * kPanelWidth;
    space.copies[0] = static_cast<std::uint32_t*>(scratch(Scratch::kRows, count_ * copies * sizeof(std::uint32_t)));
    space.sums[0] = static_cast<float*>(scratch(Scratch::kTile, count_ * sums * sizeof(float)));
    space.transposed[0] = static_cast<float*>(scratch(Scratch::kTransposed, count_ * kTransposed * sizeof(float)));
    space.copies[1] = space.copies[0] + copies;
    space.sums[1] = space.sums[0] + sums;
    space.transposed[1] = space.transposed[0] + kTransposed;
    for (auto column = columns.begin; column < columns.end; column += kBlockColumns) {
      const Share strip{column, std::min(columns.end, column + kBlockColumns)};
      for (std::int64_t word = 0; word == 0 || word < words_; word += kPart) {
        const Block block{strip, {word, std::min(words_, word + kPart)}};
        for (int weight = 0; weight < count_; ++weight) {
          prepare(weight, block, next_of(block, columns.end), space);
        }
        multiply_block(block, space);
      }
    }
  }

  // The block after this one; its columns are none after the last.
  Block next_of(const Block& block, std::int64_t end) const {
    if (block.words.end < words_) {
      return {block.columns, {block.words.end, std::min(words_, block.words.end + kPart)}};
    }
    return {{block.columns.end, std::min(end, block.columns.end + kBlockColumns)}, {0, std::min(words_, kPart)}};
  }

  // Finds the rows of a block, or copies them; the next block's are fetched while this one is multiplied.
  void prepare(int weight, const Block& block, const Block& next, Workspace& space) const {
    const auto& from = weights_[weight];
    const auto k = block.words.begin * PairFormat::kStep;
    if (!in_place(from, problem_.k)) {
      const auto stride = row_distance(kPart);
      pack<PairFormat, Packed::kRows>(from, block.columns.begin, block.columns.end - block.columns.begin, k,
                                      std::min(problem_.k, block.words.end * PairFormat::kStep) - k, space.copies[weight], stride);
      space.rows[weight] = {space.copies[weight], stride};
      return;
    }
    space.rows[weight] = {reinterpret_cast<const std::uint32_t*>(from.at(block.columns.begin, k)), from.row_stride / PairFormat::kStep};
    const auto steps = (rows_ + kPanelWidth - 1) / kPanelWidth *
                       ((block.columns.end - block.columns.begin + kTileColumns - 1) / kTileColumns) *
                       ((block.words.end - block.words.begin) / kTileWords);
    space.next[weight] =
        BlockPrefetch(from.at(next.columns.begin, next.words.begin * PairFormat::kStep), next.columns.end - next.columns.begin,
                      (next.words.end - next.words.begin) * static_cast<std::int64_t>(sizeof(std::uint32_t)),
                      from.row_stride * static_cast<std::int64_t>(sizeof(std::uint16_t)), steps);
  }

  void multiply_block(const Block& block, Workspace& space) const {
    const auto words = block.words.end - block.words.begin;
    const auto width = block.columns.end - block.columns.begin;
    const bool last = block.words.end >= words_;
    for (std::int64_t row = 0; row < rows_; row += kPanelWidth) {
      const auto height = std::min<std::int64_t>(kPanelWidth, rows_ - row);
      const auto* panel = panel_at(row, block.words.begin);
      const auto place = words_ > kPart ? row * kBlockColumns : 0;
      for (int weight = 0; weight < count_; ++weight) {
        const auto [from, stride] = space.rows[weight];
        for (std::int64_t word = 0; word == 0 || word < words; word += kChunk) {
          const auto chunk = std::min(kChunk, words - word);
          const bool add = block.words.begin + word > 0;
          for (std::int64_t column = 0; column < width; column += kTileColumns) {
            const Rows rows{from + column * stride + word, stride};
            const auto columns = std::min<std::int64_t>(kTileColumns, width - column);
            auto* to = space.sums[weight] + place + column * kPanelWidth;
            if (height > kLanes) {
              multiply_columns<2>(rows, columns, panel + word * kPanelWidth, chunk, to, add, space.next[weight]);
            } else {
              multiply_columns<1>(rows, columns, panel + word * kPanelWidth, chunk, to, add, space.next[weight]);
            }
          }
        }
        if (last) {
          transpose_sums(space.sums[weight] + place, width, space.transposed[weight]);
        }
      }
      if (last) {
        finisher_.finish(first_ + row, height, block.columns.begin, width, space.transposed[0], count_ == 2 ? space.transposed[1] : nullptr,
                         kBlockColumns);
      }
    }
  }

  // [columns, kPanelWidth] to [kPanelWidth, kBlockColumns].
  static void transpose_sums(const float* from, std::int64_t columns, float* to) {
    for (std::int64_t column = 0; column < columns; column += kLanes) {
      for (std::int64_t lane = 0; lane < kPanelWidth; lane += kLanes) {
        Floats square[kLanes];
        load_lines(square, from + column * kPanelWidth + lane, kPanelWidth * sizeof(float), kIndices<kLanes>);
        transpose(square);
        store_lines(square, to + lane * kBlockColumns + column, kBlockColumns * sizeof(float), kLanes, kIndices<kLanes>);
      }
    }
  }

  const Matmul& problem_;
  const Finisher finisher_;
  const Operand<PairFormat> a_;
  const Operand<PairFormat> weights_[2];
  const int count_;
  const std::int64_t words_;
  std::int64_t first_ = 0;  // of the rows in panels
  std::int64_t rows_ = 0;
  std::uint32_t* panels_ = nullptr;  // [panel, word, kPanelWidth]
};

}  // namespace
}  // namespace neuron::kernels
