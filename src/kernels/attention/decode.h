// Attention of few queries: bound by reading keys and values, which happens once for all query heads of a group.
//
// The keys of a head are cut into chunks, whatever the number of threads; each gives a softmax of its own, and the last of a head to finish
// merges them in order.
#pragma once

#include <atomic>

#include "kernels/attention/scores.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

// How the products of one key with queries are summed up: by pairs of bfloat16, or by floats.
template <class T>
struct FloatDot {
  using Query = float;
  static constexpr int kStep = kLanes;
  static Floats query(const float* from) { return load<Floats>(from); }
  static Floats multiply_add(Floats sum, Floats query, const T* key) { return sum + query * read(key); }
  static Floats multiply_add_part(Floats sum, Floats query, const T* key, std::ptrdiff_t n) { return sum + query * read_part(key, n); }
};

struct PairDot {
  using Query = BFloat16;
  static constexpr int kStep = 2 * kLanes;
  static Words query(const BFloat16* from) { return load<Words>(from); }
  static Floats multiply_add(Floats sum, Words query, const BFloat16* key) { return dot_pairs(sum, query, load<Words>(key)); }
  static Floats multiply_add_part(Floats sum, Words query, const BFloat16* key, std::ptrdiff_t n) {
    BFloat16 whole[kStep] = {};
    std::memcpy(whole, key, static_cast<std::size_t>(n) * sizeof(BFloat16));
    return dot_pairs(sum, query, load<Words>(whole));
  }
};

template <class T>
using DotOf = std::conditional_t<kHasBf16Dot && std::is_same_v<T, BFloat16>, PairDot, FloatDot<T>>;

template <class T>
class Decode {
  using Dot = DotOf<T>;
  static constexpr std::int64_t kBlock = 32;  // keys whose weights are computed before their values are read
  static constexpr std::int64_t kMinimumChunk = 512;
  static constexpr std::int64_t kMostChunks = 64;  // of one head, bounds the memory of their sums
  static constexpr int kValueRows = kRegisters == 32 ? 4 : 2;
  static constexpr int kValueVectors = 4;

 public:
  explicit Decode(const Attention& call)
      : call_(call),
        group_(call.query_heads / call.key_heads),
        rows_(group_ * call.queries),
        query_size_(round_up(call.head_size, Dot::kStep)),
        width_(round_up(call.value_size, kLanes)),
        chunk_(std::max(kMinimumChunk, round_up((call.keys + kMostChunks - 1) / kMostChunks, kBlock))),
        chunks_(std::max<std::int64_t>(1, (call.keys + chunk_ - 1) / chunk_)) {}

  void run(Threads& threads) {
    const auto heads = call_.batches * call_.key_heads;
    // For each chunk and row: width_ sums, then the maximum and the sum of weights. Behind all: how many chunks of a head are open.
    const auto floats = heads * chunks_ * rows_ * (width_ + kLanes);
    sums_ = static_cast<float*>(scratch(Scratch::kShared, floats * sizeof(float) + heads * sizeof(std::atomic<std::int64_t>)));
    auto* open = reinterpret_cast<std::atomic<std::int64_t>*>(sums_ + floats);
    for (std::int64_t head = 0; head < heads; ++head) {
      new (open + head) std::atomic<std::int64_t>(chunks_);
    }
    std::atomic<std::int64_t> next{0};
    threads.run([&](int, int) {
      for (std::int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < heads * chunks_;) {
        attend(task / chunks_, task % chunks_);
        if (open[task / chunks_].fetch_sub(1, std::memory_order_acq_rel) == 1) {
          merge(task / chunks_);
        }
      }
    });
  }

 private:
  struct Work {
    std::int64_t batch, key_head;
    typename Dot::Query* queries;  // [rows_][query_size_], zeros behind head_size
    float* products;               // [rows_][kBlock], then the weights
    float* added;                  // [rows_][kBlock]
    float* factors;                // [rows_, rounded up to kLanes]
    SoftmaxState* state;           // [rows_ / kLanes]
    float* sums;                   // [rows_][width_]
  };

  float* sums_of_chunk(std::int64_t head, std::int64_t chunk) const { return sums_ + (head * chunks_ + chunk) * rows_ * (width_ + kLanes); }
  // Row r of a group is query r % queries of its head r / queries.
  std::int64_t query_head(const Work& work, std::int64_t row) const { return work.key_head * group_ + row / call_.queries; }

  void attend(std::int64_t head, std::int64_t chunk) const {
    Work work{};
    work.batch = head / call_.key_heads;
    work.key_head = head % call_.key_heads;
    const auto row_groups = round_up(rows_, kLanes) / kLanes;
    const auto states = row_groups * std::int64_t{sizeof(SoftmaxState) / sizeof(float)};
    const auto floats = 2 * rows_ * kBlock + round_up(rows_, kLanes) + states + rows_ * query_size_;
    work.products = static_cast<float*>(scratch(Scratch::kRows, floats * sizeof(float)));
    work.added = work.products + rows_ * kBlock;
    work.factors = work.added + rows_ * kBlock;
    work.state = reinterpret_cast<SoftmaxState*>(work.factors + round_up(rows_, kLanes));
    work.queries = reinterpret_cast<typename Dot::Query*>(work.factors + round_up(rows_, kLanes) + states);
    work.sums = sums_of_chunk(head, chunk);
    for (std::int64_t i = 0; i < row_groups; ++i) {
      work.state[i].clear();
    }
    std::fill(work.sums, work.sums + rows_ * width_, 0.0F);

    KeyRange range = intersect({visible_keys(call_, 0).begin, visible_keys(call_, call_.queries - 1).end},
                               {chunk * chunk_, std::min((chunk + 1) * chunk_, call_.keys)});
    bool queries_read = false;
    for (auto key = range.begin; key < range.end; key += kBlock) {
      const auto count = std::min(kBlock, range.end - key);
      if (call_.mask.kind != AttentionMask::Kind::kNone && !read_masks(work, key, count)) {
        continue;
      }
      if (!queries_read) {
        copy_queries(work);
        queries_read = true;
      }
      attend_block(work, key, count, range.end - key);
    }
    auto* ends = work.sums + rows_ * width_;
    for (std::int64_t row = 0; row < rows_; ++row) {
      ends[row * kLanes] = work.state[row / kLanes].maximum[row % kLanes];
      ends[row * kLanes + 1] = work.state[row / kLanes].sum[row % kLanes];
    }
  }

  bool read_masks(const Work& work, std::int64_t key, std::int64_t count) const {
    bool seen = false;
    for (std::int64_t row = 0; row < rows_; ++row) {
      seen |= read_mask(call_.mask, work.batch, query_head(work, row), row % call_.queries, key, count, work.added + row * kBlock);
    }
    return seen;
  }

  void copy_queries(const Work& work) const {
    const float factor = query_factor(call_);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto* from = row_of<T>(call_.query, work.batch, query_head(work, row), row % call_.queries);
      auto* to = work.queries + row * query_size_;
      std::memset(static_cast<void*>(to), 0, query_size_ * sizeof(*to));
      if constexpr (std::is_same_v<T, typename Dot::Query>) {
        copy_query(from, to, call_.head_size, factor);
      } else {
        for (std::int64_t j = 0; j < call_.head_size; j += kLanes) {
          write(to + j, read(from + j, call_.head_size - j) * factor, call_.head_size - j);
        }
      }
    }
  }

  // `count` keys of the `left` that the chunk still has.
  void attend_block(const Work& work, std::int64_t key, std::int64_t count, std::int64_t left) const {
    const auto* keys = row_of<T>(call_.key, work.batch, work.key_head, key);
    const auto* values = row_of<T>(call_.value, work.batch, work.key_head, key);
    // Computing asks for the same places of the next block as it goes along: the processor does not guess rows that are apart, and
    // computing and reading would take turns.
    const auto ahead = left >= 2 * kBlock ? kBlock : 0;
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const auto n = std::min<std::int64_t>(kLanes, count - j);
      multiply_keys(work, keys + j * call_.key.row, n, j, ahead * call_.key.row);
    }
    const bool masked = call_.mask.kind != AttentionMask::Kind::kNone;
    const auto whole = round_up(count, kLanes);
    for (std::int64_t row = 0; row < rows_; ++row) {
      auto* products = work.products + row * kBlock;
      auto* added = work.added + row * kBlock;
      const auto visible = visible_keys(call_, row % call_.queries);
      const auto begin = std::clamp<std::int64_t>(visible.begin - key, 0, count);
      const auto end = std::clamp<std::int64_t>(visible.end - key, begin, count);
      std::fill(products, products + begin, -kInfinity);
      std::fill(products + end, products + whole, -kInfinity);
      if (masked) {
        std::fill(added + count, added + whole, 0.0F);
      }
    }
    for (std::int64_t row = 0; row < rows_; row += kLanes) {
      auto* products = work.products + row * kBlock;
      softmax_step<std::is_same_v<T, float>>(work.state[row / kLanes], std::min<std::int64_t>(kLanes, rows_ - row), products,
                                             masked ? work.added + row * kBlock : nullptr, kBlock, score_scale(call_), whole, products,
                                             work.factors + row);
    }
    std::int64_t row = 0;
    for (; row + kValueRows <= rows_; row += kValueRows) {
      add_values<kValueRows>(work, row, values, count, row == 0 ? ahead * call_.value.row : 0);
    }
    for (; row + 2 <= rows_; row += 2) {
      add_values<2>(work, row, values, count, row == 0 ? ahead * call_.value.row : 0);
    }
    for (; row < rows_; ++row) {
      add_values<1>(work, row, values, count, row == 0 ? ahead * call_.value.row : 0);
    }
  }

  // products[row][at + j] = query row . key j, for n <= kLanes keys; the lanes behind them repeat the last key.
  void multiply_keys(const Work& work, const T* keys, std::int64_t n, std::int64_t at, std::int64_t ahead) const {
    if (n == kLanes) {
      multiply_keys(work, at, ahead, [&](int j) __attribute__((always_inline)) { return keys + j * call_.key.row; });
    } else {
      multiply_keys(work, at, ahead,
                    [&](int j) __attribute__((always_inline)) { return keys + std::min<std::int64_t>(j, n - 1) * call_.key.row; });
    }
  }

  template <class Key>
  void multiply_keys(const Work& work, std::int64_t at, std::int64_t ahead, Key key) const {
    const auto whole = call_.head_size / Dot::kStep * Dot::kStep;
    const auto rest = call_.head_size - whole;
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto* query = work.queries + row * query_size_;
      Floats sums[kLanes] = {};
      for (std::int64_t d = 0; d < whole; d += Dot::kStep) {
        const auto q = Dot::query(query + d);
        if (row == 0 && ahead != 0) {
          unrolled<kLanes>([&](auto j) __attribute__((always_inline)) { __builtin_prefetch(key(j) + d + ahead, 0, 2); });
        }
        unrolled<kLanes>([&](auto j) __attribute__((always_inline)) { sums[j] = Dot::multiply_add(sums[j], q, key(j) + d); });
      }
      if (rest != 0) {
        const auto q = Dot::query(query + whole);
        unrolled<kLanes>([&](auto j)
                             __attribute__((always_inline)) { sums[j] = Dot::multiply_add_part(sums[j], q, key(j) + whole, rest); });
      }
      write(work.products + row * kBlock + at, sums_of(sums));
    }
  }

  // sums[row] = factor * sums[row] + sum over keys of weight * value, for kRows rows.
  template <int kRows>
  void add_values(const Work& work, std::int64_t row, const T* values, std::int64_t count, std::int64_t ahead) const {
    constexpr std::int64_t kColumns = std::int64_t{kValueVectors} * kLanes;
    std::int64_t column = 0;
    for (; column + kColumns <= call_.value_size; column += kColumns) {
      add_columns<kRows, kValueVectors>(work, row, values, count, ahead, column, kColumns);
    }
    for (; column < call_.value_size; column += kLanes) {
      add_columns<kRows, 1>(work, row, values, count, ahead, column, call_.value_size - column);
    }
  }

  template <int kRows, int kVectors>
  void add_columns(const Work& work, std::int64_t row, const T* values, std::int64_t count, std::int64_t ahead, std::int64_t column,
                   std::int64_t left) const {
    const auto* weights = work.products + row * kBlock;
    auto* to = work.sums + row * width_ + column;
    Floats sums[kRows][kVectors];
    unrolled<kRows>([&](auto i) __attribute__((always_inline)) {
      unrolled<kVectors>([&](auto j)
                             __attribute__((always_inline)) { sums[i][j] = work.factors[row + i] * read(to + i * width_ + j * kLanes); });
    });
    const auto* value = values + column;
    for (std::int64_t key = 0; key < count; ++key, value += call_.value.row) {
      if (ahead != 0) {
        constexpr int kLine = 64 / sizeof(T);
        unrolled<std::max(1, kVectors * kLanes / kLine)>(
            [&](auto j) __attribute__((always_inline)) { __builtin_prefetch(value + ahead + j * kLine, 0, 2); });
      }
      Floats right[kVectors];
      unrolled<kVectors>([&](auto j)
                             __attribute__((always_inline)) { right[j] = kVectors > 1 ? read(value + j * kLanes) : read(value, left); });
      unrolled<kRows>([&](auto i) __attribute__((always_inline)) {
        const Floats weight = broadcast(weights[i * kBlock + key]);
        unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { sums[i][j] = multiply_add(sums[i][j], weight, right[j]); });
      });
    }
    unrolled<kRows>([&](auto i) __attribute__((always_inline)) {
      unrolled<kVectors>([&](auto j) __attribute__((always_inline)) { write(to + i * width_ + j * kLanes, sums[i][j]); });
    });
  }

  // The output of all rows of a head from the sums of its chunks. Uses the first chunk's sums.
  void merge(std::int64_t head) const {
    Work work{};
    work.batch = head / call_.key_heads;
    work.key_head = head % call_.key_heads;
    for (std::int64_t row = 0; row < rows_; ++row) {
      SoftmaxState total;
      total.clear();
      auto& maximum = total.maximum[0];
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        maximum = std::max(maximum, end_of(head, chunk, row)[0]);
      }
      auto* sums = sums_of_chunk(head, 0) + row * width_;
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        const auto* end = end_of(head, chunk, row);
        const float factor = end[0] == -kInfinity ? 0 : std::exp2(end[0] - maximum);
        total.sum[0] += end[1] * factor;
        const auto* part = sums_of_chunk(head, chunk) + row * width_;
        for (std::int64_t j = 0; j < width_; j += kLanes) {
          const Floats scaled = read(part + j) * factor;
          write(sums + j, chunk == 0 ? scaled : read(sums + j) + scaled);
        }
      }
      write_row(work, row, sums, total);
    }
  }

  const float* end_of(std::int64_t head, std::int64_t chunk, std::int64_t row) const {
    return sums_of_chunk(head, chunk) + rows_ * width_ + row * kLanes;
  }

  void write_row(const Work& work, std::int64_t row, const float* sums, const SoftmaxState& state) const {
    const auto head = query_head(work, row);
    const auto query = row % call_.queries;
    auto* to = static_cast<T*>(call_.output) + work.batch * call_.output_batch + head * call_.output_head + query * call_.output_row;
    const float scale = state.scale(0);
    for (std::int64_t j = 0; j < call_.value_size; j += kLanes) {
      write(to + j, read(sums + j) * scale, call_.value_size - j);
    }
    if (call_.logsumexp != nullptr) {
      call_.logsumexp[work.batch * call_.logsumexp_batch + head * call_.logsumexp_head + query * call_.logsumexp_row] = state.logsumexp(0);
    }
  }

  const Attention& call_;
  std::int64_t group_;
  std::int64_t rows_;  // query heads of a group times queries
  std::int64_t query_size_;
  std::int64_t width_;
  std::int64_t chunk_;  // keys
  std::int64_t chunks_;
  float* sums_ = nullptr;
};

}  // namespace
}  // namespace neuron::kernels
