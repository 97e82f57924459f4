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
  static Floats key(const T* from) { return read(from); }
  static Floats key_part(const T* from, std::ptrdiff_t n) { return read_part(from, n); }
  static Floats multiply_add(Floats sum, Floats query, Floats key) { return sum + query * key; }
};

struct PairDot {
  using Query = BFloat16;
  static constexpr int kStep = 2 * kLanes;
  static Words query(const BFloat16* from) { return load<Words>(from); }
  static Words key(const BFloat16* from) { return load<Words>(from); }
  static Words key_part(const BFloat16* from, std::ptrdiff_t n) {
    BFloat16 whole[kStep] = {};
    std::memcpy(whole, from, static_cast<std::size_t>(n) * sizeof(BFloat16));
    return load<Words>(whole);
  }
  static Floats multiply_add(Floats sum, Words query, Words key) { return dot_pairs(sum, query, key); }
};

template <class T>
using DotOf = std::conditional_t<kHasBf16Dot && std::is_same_v<T, BFloat16>, PairDot, FloatDot<T>>;

template <class T>
class Decode {
  using Dot = DotOf<T>;
  static constexpr std::int64_t kBlock = 32;  // keys whose weights are computed before their values are read
  static constexpr std::int64_t kMinimumChunk = 512;
  static constexpr std::int64_t kMostChunks = 64;  // of one head, bounds the memory of their sums
  // Rows that are worked on together, so that their sums fit the registers with many vectors of a value, or with some.
  static constexpr int kFewRows = 2;
  static constexpr int kMoreRows = kRegisters == 32 ? 4 : 2;
  static constexpr int kWide = kRegisters == 32 ? 8 : 4;
  static constexpr int kNarrow = 4;

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
    const auto ahead = left >= 2 * kBlock;
    for (std::int64_t j = 0; j < count; j += kLanes) {
      multiply_keys(work, keys + j * call_.key.row, std::min<std::int64_t>(kLanes, count - j), j, ahead);
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
    const auto value_ahead = ahead ? distance_ahead(call_.value_size, call_.value.row) : 0;
    for_rows([&]<int kRows>(std::integral_constant<int, kRows>, std::int64_t row) {
      add_values<kRows>(work, row, values, count, row == 0 ? value_ahead : 0);
    });
  }

  // Calls f(number of rows, first row) until all rows have been worked on.
  template <class Function>
  void for_rows(const Function& function) const {
    std::int64_t row = 0;
    for (; row + kMoreRows <= rows_; row += kMoreRows) {
      function(std::integral_constant<int, kMoreRows>{}, row);
    }
    for (; row + kFewRows <= rows_; row += kFewRows) {
      function(std::integral_constant<int, kFewRows>{}, row);
    }
    for (; row < rows_; ++row) {
      function(std::integral_constant<int, 1>{}, row);
    }
  }

  // How far ahead rows of `size` elements are fetched, in elements: so many rows that a cache whose rows follow each other is read as one
  // stream, with the distance that suits the hardware's own prefetch.
  static std::int64_t distance_ahead(std::int64_t size, std::int64_t row) {
    constexpr std::int64_t kBytes = 2048;
    return std::max<std::int64_t>(1, kBytes / std::max<std::int64_t>(1, size * static_cast<std::int64_t>(sizeof(T)))) * row;
  }

  // products[row][at + j] = query row . key j, for n <= kLanes keys; the lanes behind them repeat the last key.
  void multiply_keys(const Work& work, const T* keys, std::int64_t n, std::int64_t at, bool ahead) const {
    for_rows([&]<int kRows>(std::integral_constant<int, kRows>, std::int64_t row) {
      alignas(64) float lanes[kRows * kLanes * kLanes];
      multiply_rows<kRows>(work, row, keys, n, row == 0 && ahead ? distance_ahead(call_.head_size, call_.key.row) : 0, lanes);
      for (int i = 0; i < kRows; ++i) {
        Floats sums[kLanes];
        load_lines(sums, lanes + i * kLanes * kLanes, sizeof(Floats), kIndices<kLanes>);
        write(work.products + (row + i) * kBlock + at, sums_of(sums));
      }
    });
  }

  template <int... kRow>
  [[gnu::always_inline]] static void add_products(Floats (&sum)[sizeof...(kRow)], const typename Dot::Query* query, std::int64_t query_size,
                                                  const T* key, std::integer_sequence<int, kRow...>) {
    const auto value = Dot::key(key);
    ((sum[kRow] = Dot::multiply_add(sum[kRow], Dot::query(query + kRow * query_size), value)), ...);
  }
  template <int... kRow>
  [[gnu::always_inline]] static void add_last_products(Floats (&sum)[sizeof...(kRow)], const typename Dot::Query* query,
                                                       std::int64_t query_size, const T* key, std::ptrdiff_t n,
                                                       std::integer_sequence<int, kRow...>) {
    const auto value = Dot::key_part(key, n);
    ((sum[kRow] = Dot::multiply_add(sum[kRow], Dot::query(query + kRow * query_size), value)), ...);
  }

  // lanes[row][key] = vectors whose lanes are to be added. Keys are read one after the other, as memory serves them best.
  template <int kRows>
  [[gnu::noinline]] void multiply_rows(const Work& work, std::int64_t row, const T* keys, std::int64_t n, std::int64_t ahead,
                                       float* lanes) const {
    constexpr auto kAll = kIndices<kRows>;
    const auto whole = call_.head_size / Dot::kStep * Dot::kStep;
    const auto rest = call_.head_size - whole;
    const auto query_size = query_size_;
    const auto* queries = work.queries + row * query_size;
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const auto* key = keys + std::min(j, n - 1) * call_.key.row;
      Floats sum[kRows];
      clear_vectors(sum, kAll);
      for (std::int64_t d = 0; d < whole; d += Dot::kStep) {
        if (ahead != 0) {
          __builtin_prefetch(key + d + ahead, 0, 2);
        }
        add_products(sum, queries + d, query_size, key + d, kAll);
      }
      if (rest != 0) {
        add_last_products(sum, queries + whole, query_size, key + whole, rest, kAll);
      }
      store_lines(sum, lanes + j * kLanes, kLanes * sizeof(Floats), kRows, kAll);
    }
  }

  // sums[row] = factor * sums[row] + sum over keys of weight * value, for kRows rows.
  template <int kRows>
  void add_values(const Work& work, std::int64_t row, const T* values, std::int64_t count, std::int64_t ahead) const {
    constexpr int kVectors = kRows <= kFewRows ? kWide : kNarrow;
    constexpr std::int64_t kColumns = std::int64_t{kVectors} * kLanes;
    std::int64_t column = 0;
    for (; column + kColumns <= call_.value_size; column += kColumns) {
      add_columns<kRows, kVectors>(work, row, values, count, ahead, column, kColumns);
    }
    for (; column < call_.value_size; column += kLanes) {
      add_columns<kRows, 1>(work, row, values, count, ahead, column, call_.value_size - column);
    }
  }

  template <int... kIndex>
  [[gnu::always_inline]] static void clear_vectors(Floats (&vector)[sizeof...(kIndex)], std::integer_sequence<int, kIndex...>) {
    ((vector[kIndex] = Floats{}), ...);
  }
  template <int kVectors, int... kIndex>
  [[gnu::always_inline]] static void load_scaled(Floats (&sum)[sizeof...(kIndex)], const float* factors, const float* from,
                                                 std::int64_t width, std::integer_sequence<int, kIndex...>) {
    ((sum[kIndex] = factors[kIndex / kVectors] * read(from + kIndex / kVectors * width + kIndex % kVectors * kLanes)), ...);
  }
  template <int kVectors, int... kIndex>
  [[gnu::always_inline]] static void store_sums(const Floats (&sum)[sizeof...(kIndex)], float* to, std::int64_t width,
                                                std::integer_sequence<int, kIndex...>) {
    (write(to + kIndex / kVectors * width + kIndex % kVectors * kLanes, sum[kIndex]), ...);
  }
  template <int... kRow>
  [[gnu::always_inline]] static void read_weights(Floats (&weight)[sizeof...(kRow)], const float* weights,
                                                  std::integer_sequence<int, kRow...>) {
    ((weight[kRow] = broadcast(weights[kRow * kBlock])), ...);
  }
  template <int kVectors, int kVector, int kSums, int... kRow>
  [[gnu::always_inline]] static void add_vector(Floats (&sum)[kSums], const Floats (&weight)[sizeof...(kRow)], Floats value,
                                                std::integer_sequence<int, kRow...>) {
    ((sum[kRow * kVectors + kVector] = multiply_add(sum[kRow * kVectors + kVector], weight[kRow], value)), ...);
  }
  template <int kRows, int... kVector>
  [[gnu::always_inline]] static void add_value(Floats (&sum)[kRows * sizeof...(kVector)], const Floats (&weight)[kRows], const T* value,
                                               std::int64_t left, std::integer_sequence<int, kVector...>) {
    (add_vector<sizeof...(kVector), kVector>(sum, weight, sizeof...(kVector) > 1 ? read(value + kVector * kLanes) : read(value, left),
                                             kIndices<kRows>),
     ...);
  }
  template <int... kLine>
  [[gnu::always_inline]] static void prefetch_value(const T* value, std::integer_sequence<int, kLine...>) {
    (__builtin_prefetch(value + kLine * (64 / sizeof(T)), 0, 2), ...);
  }

  template <int kRows, int kVectors>
  [[gnu::noinline]] void add_columns(const Work& work, std::int64_t row, const T* values, std::int64_t count, std::int64_t ahead,
                                     std::int64_t column, std::int64_t left) const {
    constexpr auto kAll = kIndices<kRows * kVectors>;
    constexpr int kLines = std::max<int>(1, kVectors * kLanes * static_cast<int>(sizeof(T)) / 64);
    const auto* weights = work.products + row * kBlock;
    auto* to = work.sums + row * width_ + column;
    Floats sum[kRows * kVectors];
    load_scaled<kVectors>(sum, work.factors + row, to, width_, kAll);
    const auto* value = values + column;
    const auto distance = call_.value.row;
    for (std::int64_t key = 0; key < count; ++key, value += distance) {
      if (ahead != 0) {
        prefetch_value(value + ahead, kIndices<kLines>);
      }
      Floats weight[kRows];
      read_weights(weight, weights + key, kIndices<kRows>);
      add_value<kRows>(sum, weight, value, left, kIndices<kVectors>);
    }
    store_sums<kVectors>(sum, to, width_, kAll);
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
