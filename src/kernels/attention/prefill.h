// Attention of many queries: keys and values are packed once into panels, then blocks of queries run over them, a tile of rows at a time,
// whose scores stay in the first cache.
#pragma once

#include <atomic>

#include "kernels/attention/scores.h"
#include "kernels/attention/tile.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

template <class T>
class Prefill {
  using Elements = ElementsOf<T>;
  using Element = typename Elements::Element;
  static constexpr int kSteps = Elements::kSteps;
  using Weight = typename Elements::Weight;
  static constexpr bool kFull = std::is_same_v<T, float>;

  static constexpr std::int64_t kQueryBlock = 96;  // a multiple of kTileRows: panels in the second cache serve that many rows
  static constexpr std::int64_t kKeyBlock = 256;   // a multiple of kPanel: scores of a tile are 12 KiB
  static constexpr std::int64_t kPanelBytes = std::int64_t{24} << 20;  // panels in memory at once, unless one head needs more

 public:
  explicit Prefill(const Attention& call)
      : call_(call),
        depth_(round_up((call.head_size + kSteps - 1) / kSteps, Elements::kDepthUnit)),
        key_panels_((call.keys + kPanel - 1) / kPanel),
        value_steps_(key_panels_ * kPanel / kSteps),
        value_width_(round_up(call.value_size, kLanes)),
        key_elements_(key_panels_ * depth_ * kPanel),
        head_elements_(key_elements_ + value_steps_ * value_width_) {}

  void run(Threads& threads) {
    const auto heads = call_.batches * call_.key_heads;
    const auto group = call_.query_heads / call_.key_heads;
    const auto blocks = (call_.queries + kQueryBlock - 1) / kQueryBlock;
    const auto at_once = std::clamp<std::int64_t>(kPanelBytes / (head_elements_ * std::int64_t{sizeof(Element)} + 1), 1, heads);
    auto* panels = static_cast<Element*>(scratch(Scratch::kShared, at_once * head_elements_ * sizeof(Element)));
    for (std::int64_t first = 0; first < heads; first += at_once) {
      const auto count = std::min(at_once, heads - first);
      std::atomic<std::int64_t> next_panel{0};
      threads.run([&](int, int) {
        for (std::int64_t task; (task = next_panel.fetch_add(1, std::memory_order_relaxed)) < count * key_panels_;) {
          pack(first + task / key_panels_, task % key_panels_, panels + task / key_panels_ * head_elements_);
        }
      });
      std::atomic<std::int64_t> next_block{0};
      threads.run([&](int, int) {
        [[maybe_unused]] const typename Elements::Registers registers;
        for (std::int64_t task; (task = next_block.fetch_add(1, std::memory_order_relaxed)) < count * group * blocks;) {
          const auto head = task / (group * blocks);
          // The last queries first: under a causal mask they are the most work.
          const auto block = blocks - 1 - task % blocks;
          attend(first + head, task / blocks % group, block * kQueryBlock, panels + head * head_elements_);
        }
      });
    }
  }

 private:
  // Bytes of kLanes elements of a row from column `column` on, as they stand in a panel: floats, or pairs.
  static Floats elements(const T* row, std::int64_t column, std::int64_t columns) {
    const auto n = columns - column;
    if constexpr (kSteps == 2) {
      BFloat16 pairs[2 * kLanes] = {};
      std::memcpy(pairs, row + column, std::min<std::int64_t>(n, 2 * kLanes) * sizeof(T));
      Floats bits;
      std::memcpy(&bits, pairs, sizeof bits);
      return bits;
    } else {
      return read(row + column, n);
    }
  }

  // Packs panel `panel` of the keys, and the same rows of the values, of one head.
  void pack(std::int64_t head, std::int64_t panel, Element* to) const {
    const auto batch = head / call_.key_heads;
    head %= call_.key_heads;
    const auto first = panel * kPanel;
    const auto count = std::min<std::int64_t>(kPanel, call_.keys - first);
    pack_keys(row_of<T>(call_.key, batch, head, first), count, to + panel * depth_ * kPanel);
    const auto* values = row_of<T>(call_.value, batch, head, first);
    auto* value_panels = to + key_elements_;
    for (std::int64_t column = 0; column < value_width_; column += kPanel) {
      const auto width = std::min<std::int64_t>(kPanel, value_width_ - column);
      pack_values(values, count, column, width, value_panels + column * value_steps_ + first / kSteps * width);
    }
  }

  void pack_keys(const T* keys, std::int64_t count, Element* to) const {
    for (std::int64_t step = 0; step < depth_; step += kLanes) {
      for (int half = 0; half < kPanel; half += kLanes) {
        Floats square[kLanes];
        for (int j = 0; j < kLanes; ++j) {
          square[j] = half + j < count ? elements(keys + (half + j) * call_.key.row, step * kSteps, call_.head_size) : Floats{};
        }
        transpose(square);
        for (std::int64_t k = 0; k < std::min<std::int64_t>(kLanes, depth_ - step); ++k) {
          std::memcpy(to + (step + k) * kPanel + half, &square[k], sizeof(Floats));
        }
      }
    }
  }

  void pack_values(const T* values, std::int64_t count, std::int64_t column, std::int64_t width, Element* to) const {
    const auto value = [&](std::int64_t row, std::int64_t at) {
      const auto n = call_.value_size - at;
      return row < count && n > 0 ? read(values + row * call_.value.row + at, n) : Floats{};
    };
    for (std::int64_t step = 0; step < kPanel / kSteps; ++step) {
      for (std::int64_t j = 0; j < width; j += kLanes) {
        Floats out = value(step * kSteps, column + j);
        if constexpr (kSteps == 2) {
          // Widened bfloat16 have empty lower halves.
          out = (Floats)(((Words)out >> 16) | (Words)value(step * 2 + 1, column + j));
        }
        std::memcpy(to + step * width + j, &out, sizeof out);
      }
    }
  }

  // The rows of one block of queries of one head, and the buffers that a tile of them needs.
  struct Block {
    std::int64_t batch, head, first, rows;
    Element* queries;  // [rows rounded up to tiles][depth_]
    float* sums;       // [the same][value_width_]
    float* products;   // [kTileRows][kKeyBlock]
    float* added;      // [kTileRows][kKeyBlock]
    Weight* weights;   // [kTileRows][kKeyBlock]
    SoftmaxState state[kQueryBlock / kTileRows];
  };

  void attend(std::int64_t key_head, std::int64_t in_group, std::int64_t first, const Element* panels) const {
    const auto group = call_.query_heads / call_.key_heads;
    Block block;
    block.batch = key_head / call_.key_heads;
    block.head = key_head % call_.key_heads * group + in_group;
    block.first = first;
    block.rows = std::min(kQueryBlock, call_.queries - first);
    for (auto& state : block.state) {
      state.clear();
    }
    const auto rows = round_up(block.rows, kTileRows);
    const auto query_floats = round_up(rows * depth_, kLanes);
    const auto scores = std::max(std::int64_t{kTileRows} * kKeyBlock, round_up(call_.head_size, kLanes));
    const auto floats = query_floats + rows * value_width_ + 3 * scores;
    block.products = static_cast<float*>(scratch(Scratch::kRows, floats * sizeof(float)));
    block.added = block.products + scores;
    block.weights = reinterpret_cast<Weight*>(block.added + scores);
    block.sums = block.added + 2 * scores;
    block.queries = reinterpret_cast<Element*>(block.sums + rows * value_width_);
    std::fill(block.sums, block.sums + rows * value_width_, 0.0F);
    std::memset(static_cast<void*>(block.weights), 0, scores * sizeof(float));
    copy_queries(block, rows);

    const auto last = first + block.rows - 1;
    const KeyRange range{visible_keys(call_, first).begin, visible_keys(call_, last).end};
    for (auto key = range.begin / kKeyBlock * kKeyBlock; key < range.end; key += kKeyBlock) {
      for (std::int64_t tile = 0; tile < block.rows; tile += kTileRows) {
        attend_tile(block, tile, {key, key + kKeyBlock}, panels);
      }
    }
    finish(block);
  }

  void copy_queries(const Block& block, std::int64_t rows) const {
    const auto* query = row_of<T>(call_.query, block.batch, block.head, block.first);
    const float factor = query_factor(call_);
    auto* row = reinterpret_cast<T*>(block.products);  // free so far
    for (std::int64_t i = 0; i < rows; ++i) {
      auto* to = reinterpret_cast<float*>(block.queries + i * depth_);
      const auto* from = query + i * call_.query.row;
      if (factor != 1 && i < block.rows) {
        copy_query(from, row, call_.head_size, factor);
        from = row;
      }
      for (std::int64_t step = 0; step < depth_; step += kLanes) {
        const Floats bits = i < block.rows ? elements(from, step * kSteps, call_.head_size) : Floats{};
        write(to + step, bits, depth_ - step);
      }
    }
  }

  // Rows tile .. tile + kTileRows of a block against the keys of one key block.
  void attend_tile(Block& block, std::int64_t tile, KeyRange keys, const Element* panels) const {
    const auto rows = std::min<std::int64_t>(kTileRows, block.rows - tile);
    const auto query = block.first + tile;
    KeyRange range = intersect(keys, {visible_keys(call_, query).begin, visible_keys(call_, query + rows - 1).end});
    if (range.empty()) {
      return;
    }
    range = {range.begin / kPanel * kPanel, round_up(range.end, kPanel)};
    const bool masked = call_.mask.kind != AttentionMask::Kind::kNone;
    if (masked && !read_masks(block, query, rows, range)) {
      return;
    }
    const auto offset = range.begin - keys.begin;
    const auto count = range.end - range.begin;
    const auto* queries = block.queries + tile * depth_;
    for (auto key = range.begin; key < range.end; key += kPanel) {
      multiply_tile<Elements, 2, false>(queries, depth_, panels + key * depth_, depth_, block.products + (key - keys.begin), kKeyBlock,
                                        nullptr);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      hide(block.products + i * kKeyBlock + offset, intersect(visible_keys(call_, query + i), {0, call_.keys}), range);
    }
    float factors[kLanes];
    softmax_step<kFull>(block.state[tile / kTileRows], rows, block.products + offset, masked ? block.added : nullptr, kKeyBlock,
                        score_scale(call_), count, block.weights, factors);
    const auto* values = panels + key_elements_;
    const auto* weights = reinterpret_cast<const Element*>(block.weights);
    auto* sums = block.sums + tile * value_width_;
    constexpr std::int64_t kWeightRow = kKeyBlock / kSteps;
    for (std::int64_t column = 0; column < value_width_; column += kPanel) {
      const auto* panel = values + column * value_steps_;
      if (value_width_ - column >= kPanel) {
        multiply_tile<Elements, 2, true>(weights, kWeightRow, panel + range.begin / kSteps * kPanel, count / kSteps, sums + column,
                                         value_width_, factors);
      } else {
        multiply_tile<Elements, 1, true>(weights, kWeightRow, panel + range.begin / kSteps * kLanes, count / kSteps, sums + column,
                                         value_width_, factors);
      }
    }
  }

  // Reads the masks of a tile and shrinks the range to the panels that any row sees. Returns whether there are any.
  bool read_masks(const Block& block, std::int64_t query, std::int64_t rows, KeyRange& range) const {
    bool seen[kKeyBlock / kPanel] = {};
    for (auto key = range.begin; key < range.end; key += kPanel) {
      const auto count = std::min<std::int64_t>(kPanel, call_.keys - key);
      for (std::int64_t i = 0; i < rows; ++i) {
        auto* to = block.added + i * kKeyBlock + (key - range.begin);
        seen[(key - range.begin) / kPanel] |= read_mask(call_.mask, block.batch, block.head, query + i, key, count, to);
        std::fill(to + count, to + kPanel, -kInfinity);
      }
    }
    auto begin = range.begin;
    auto end = range.end;
    while (begin < end && !seen[(begin - range.begin) / kPanel]) {
      begin += kPanel;
    }
    while (begin < end && !seen[(end - kPanel - range.begin) / kPanel]) {
      end -= kPanel;
    }
    if (begin != range.begin && begin < end) {
      for (std::int64_t i = 0; i < rows; ++i) {
        auto* row = block.added + i * kKeyBlock;
        std::memmove(row, row + (begin - range.begin), (end - begin) * sizeof(float));
      }
    }
    range = {begin, end};
    return begin < end;
  }

  // Makes the products outside of what a row sees vanish in the softmax.
  static void hide(float* products, KeyRange visible, KeyRange range) {
    const auto begin = std::clamp(visible.begin, range.begin, range.end) - range.begin;
    const auto end = std::clamp(visible.end, range.begin, range.end) - range.begin;
    std::fill(products, products + begin, -kInfinity);
    std::fill(products + std::max(begin, end), products + (range.end - range.begin), -kInfinity);
  }

  void finish(const Block& block) const {
    auto* output = static_cast<T*>(call_.output) + block.batch * call_.output_batch + block.head * call_.output_head;
    for (std::int64_t i = 0; i < block.rows; ++i) {
      const auto& state = block.state[i / kTileRows];
      const auto lane = i % kTileRows;
      const float scale = state.scale(lane);
      auto* to = output + (block.first + i) * call_.output_row;
      for (std::int64_t j = 0; j < call_.value_size; j += kLanes) {
        write(to + j, read(block.sums + i * value_width_ + j) * scale, call_.value_size - j);
      }
      if (call_.logsumexp != nullptr) {
        call_.logsumexp[block.batch * call_.logsumexp_batch + block.head * call_.logsumexp_head + (block.first + i) * call_.logsumexp_row] =
            state.logsumexp(lane);
      }
    }
  }

  const Attention& call_;
  std::int64_t depth_;  // steps of the head dimension
  std::int64_t key_panels_;
  std::int64_t value_steps_;
  std::int64_t value_width_;
  std::int64_t key_elements_;   // of one head's keys in panels
  std::int64_t head_elements_;  // of its keys and values
};

}  // namespace
}  // namespace neuron::kernels
