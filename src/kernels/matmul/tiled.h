// Products of bfloat16 matrices in AMX tile registers. Rows of the weight are used where they are, A is packed into panels of 32 rows.
//
// As in streamed.h the weight's rows are the left operand, so sums are those of C transposed. A block of the weight (kBlockColumns rows by
// kBlockWords words) stays in the second level cache while all panels of A pass by, and the next block is fetched meanwhile.
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

constexpr std::int64_t kTileColumns = 2 * kTileHeight;       // of C, that are computed together
constexpr std::int64_t kBlockColumns = 4 * kTileColumns;     // of C, in a block
constexpr std::int64_t kBlockWords = 512;                    // along k in a block
constexpr std::int64_t kChunk = 128;                         // words of a panel that stay in the first level cache, beside a block's sums
constexpr std::int64_t kMostWords = 4096;                    // along k, that are packed at once
constexpr std::int64_t kPanelBytes = std::int64_t{8} << 20;  // of the panels that are packed at once
constexpr std::int64_t kKeptRows = 1024;                     // of C, whose sums are kept from block to block
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
    const auto stretch = std::clamp<std::int64_t>(words_, 1, kMostWords);
    const bool kept = words_ > stretch;
    auto most = kPanelBytes / (stretch * kSize);
    if (words_ > kBlockWords) {
      most = std::min(most, kKeptRows);
    }
    if (kept) {
      most = std::min(most, kPanelBytes / (problem_.n * kSize));
    }
    most = std::max<std::int64_t>(1, most / kPanelWidth) * kPanelWidth;
    for (std::int64_t row = 0; row < problem_.m; row += most) {
      Pass pass{.rows = {row, std::min(problem_.m, row + most)}};
      const auto height = round_up(pass.rows.end - row, kPanelWidth);
      pass.panels = static_cast<std::uint32_t*>(scratch(Scratch::kShared, height * stretch * kSize));
      pass.sums =
          kept ? static_cast<float*>(scratch(Scratch::kPanel, count_ * height * round_up(problem_.n, kTileColumns) * kSize)) : nullptr;
      for (std::int64_t word = 0; word == 0 || word < words_; word += stretch) {
        pass.words = {word, std::min(words_, word + stretch)};
        threads.run([&](int member, int count) { pack_panels(pass, share_of(pass.words.end - word, kLanes, member, count)); });
        threads.run([&](int member, int count) { multiply_share(pass, share_of(problem_.n, kTileColumns, member, count)); });
      }
    }
  }

 private:
  static constexpr std::int64_t kSize = sizeof(float);  // of words and sums

  static const std::uint16_t* elements(const MatrixView& view) { return static_cast<const std::uint16_t*>(view.data); }

  static bool in_place(const Operand<PairFormat>& weight, std::int64_t k) {
    return weight.k_stride == 1 && weight.row_stride % PairFormat::kStep == 0 && k % PairFormat::kStep == 0;
  }

  // The part of A that is packed.
  struct Pass {
    Share rows;
    Share words{};
    std::uint32_t* panels = nullptr;  // [panel, word, kPanelWidth]
    float* sums = nullptr;            // of all columns, if there is another part along k; else each member has its own

    std::uint32_t* panel_at(std::int64_t row, std::int64_t word) const {
      return panels + (row - rows.begin) * (words.end - words.begin) + (word - words.begin) * kPanelWidth;
    }
    std::int64_t height() const { return round_up(rows.end - rows.begin, kPanelWidth); }
  };

  // `words` counts from the pass's first.
  void pack_panels(const Pass& pass, const Share& words) const {
    const auto word = pass.words.begin + words.begin;
    const auto k = word * PairFormat::kStep;
    const auto count = std::min(problem_.k, (pass.words.begin + words.end) * PairFormat::kStep) - k;
    for (auto row = pass.rows.begin; row < pass.rows.end && count > 0; row += kPanelWidth) {
      pack<PairFormat, Packed::kColumns>(a_, row, std::min<std::int64_t>(kPanelWidth, pass.rows.end - row), k, count,
                                         pass.panel_at(row, word), kPanelWidth);
    }
  }

  // Columns of C and words along k that are worked on together.
  struct Block {
    Share columns;
    Share words;

    std::int64_t width() const { return columns.end - columns.begin; }
    std::int64_t depth() const { return words.end - words.begin; }
  };

  // What a member works with.
  struct Workspace {
    std::uint32_t* copies[2];  // of rows of a weight that cannot be used where they are: [kBlockColumns, row_distance(kBlockWords)]
    float* sums[2];            // of the current columns: [panel, column, kPanelWidth]
    float* transposed[2];      // [kPanelWidth, kBlockColumns]
    Rows rows[2];              // of the current block
    BlockPrefetch next[2];
  };

  void multiply_share(const Pass& pass, const Share& columns) const {
    if (columns.begin >= columns.end) {
      return;
    }
    const TileRegisters registers;
    Workspace space{};
    constexpr auto kTransposed = kBlockColumns * kPanelWidth;
    const auto copies = kBlockColumns * row_distance(kBlockWords);
    const auto sums = (words_ > kBlockWords ? pass.height() : kPanelWidth) * kBlockColumns;
    auto* own_copies = static_cast<std::uint32_t*>(scratch(Scratch::kRows, count_ * copies * kSize));
    auto* own_sums = pass.sums != nullptr ? nullptr : static_cast<float*>(scratch(Scratch::kTile, count_ * sums * kSize));
    auto* transposed = static_cast<float*>(scratch(Scratch::kTransposed, count_ * kTransposed * kSize));
    for (auto column = columns.begin; column < columns.end; column += kBlockColumns) {
      const Share strip{column, std::min(columns.end, column + kBlockColumns)};
      for (int weight = 0; weight < count_; ++weight) {
        space.copies[weight] = own_copies + weight * copies;
        space.transposed[weight] = transposed + weight * kTransposed;
        space.sums[weight] = pass.sums != nullptr ? pass.sums + (weight * round_up(problem_.n, kTileColumns) + column) * pass.height()
                                                  : own_sums + weight * sums;
      }
      for (auto word = pass.words.begin; word == pass.words.begin || word < pass.words.end; word += kBlockWords) {
        const Block block{strip, {word, std::min(pass.words.end, word + kBlockWords)}};
        for (int weight = 0; weight < count_; ++weight) {
          prepare(weight, pass, block, next_of(pass, block, columns.end), space);
        }
        multiply_block(pass, block, space);
      }
    }
  }

  // The block after this one; its columns are none after the last.
  static Block next_of(const Pass& pass, const Block& block, std::int64_t end) {
    if (block.words.end < pass.words.end) {
      return {block.columns, {block.words.end, std::min(pass.words.end, block.words.end + kBlockWords)}};
    }
    return {{block.columns.end, std::min(end, block.columns.end + kBlockColumns)},
            {pass.words.begin, std::min(pass.words.end, pass.words.begin + kBlockWords)}};
  }

  // Finds the rows of a block, or copies them; the next block's are fetched while this one is multiplied.
  void prepare(int weight, const Pass& pass, const Block& block, const Block& next, Workspace& space) const {
    const auto& from = weights_[weight];
    const auto k = block.words.begin * PairFormat::kStep;
    if (!in_place(from, problem_.k)) {
      const auto stride = row_distance(kBlockWords);
      pack<PairFormat, Packed::kRows>(from, block.columns.begin, block.width(), k,
                                      std::min(problem_.k, block.words.end * PairFormat::kStep) - k, space.copies[weight], stride);
      space.rows[weight] = {space.copies[weight], stride};
      return;
    }
    space.rows[weight] = {reinterpret_cast<const std::uint32_t*>(from.at(block.columns.begin, k)), from.row_stride / PairFormat::kStep};
    const auto tiles = pass.height() / kPanelWidth * (round_up(block.width(), kTileColumns) / kTileColumns);
    space.next[weight] =
        BlockPrefetch(from.at(next.columns.begin, next.words.begin * PairFormat::kStep), next.width(), next.depth() * kSize,
                      from.row_stride * static_cast<std::int64_t>(sizeof(std::uint16_t)), tiles * (block.depth() / kTileWords));
  }

  void multiply_block(const Pass& pass, const Block& block, Workspace& space) const {
    const bool last = block.words.end >= words_;
    for (auto row = pass.rows.begin; row < pass.rows.end; row += kPanelWidth) {
      const auto height = std::min<std::int64_t>(kPanelWidth, pass.rows.end - row);
      const auto place = words_ > kBlockWords ? (row - pass.rows.begin) * round_up(block.width(), kTileColumns) : 0;
      for (int weight = 0; weight < count_; ++weight) {
        auto* sums = space.sums[weight] + place;
        multiply_panel(block, space.rows[weight], pass.panel_at(row, block.words.begin), height > kLanes, sums, space.next[weight]);
        if (last) {
          transpose_sums(sums, block.width(), space.transposed[weight]);
        }
      }
      if (last) {
        finisher_.finish(row, height, block.columns.begin, block.width(), space.transposed[0], count_ == 2 ? space.transposed[1] : nullptr,
                         kBlockColumns);
      }
    }
  }

  // A chunk of the panel meets all rows of the block before the next one.
  static void multiply_panel(const Block& block, const Rows& from, const std::uint32_t* panel, bool wide, float* sums,
                             BlockPrefetch& prefetch) {
    for (std::int64_t word = 0; word == 0 || word < block.depth(); word += kChunk) {
      const auto words = std::min(kChunk, block.depth() - word);
      const bool add = block.words.begin + word > 0;
      for (std::int64_t column = 0; column < block.width(); column += kTileColumns) {
        const Rows rows{from.words + column * from.stride + word, from.stride};
        const auto columns = std::min(kTileColumns, block.width() - column);
        auto* to = sums + column * kPanelWidth;
        if (wide) {
          multiply_columns<2>(rows, columns, panel + word * kPanelWidth, words, to, add, prefetch);
        } else {
          multiply_columns<1>(rows, columns, panel + word * kPanelWidth, words, to, add, prefetch);
        }
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
};

}  // namespace
}  // namespace neuron::kernels
