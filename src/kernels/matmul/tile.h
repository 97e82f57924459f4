// The inner loop of large products: a tile of sums in registers, rows of one operand times a packed panel of the other.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/matmul/formats.h"

namespace neuron::kernels {
namespace {

// Rows of a tile and vectors in a row of it: 24 (12) sums, two vectors of the panel and a broadcast fit the 32 (16) registers.
constexpr int kTileRows = kRegisters == 32 ? 12 : 6;
constexpr int kTileVectors = 2;
constexpr int kPanelWidth = kTileVectors * kLanes;

// Lines of memory that will be needed soon, fetched into the second level cache while a tile is computed.
struct Prefetch {
  const char* next;
  std::int64_t step;  // bytes
  const char* end;
};

// A tile's sums: kVectors vectors for each row. Only indexed by constants, from pack expansions of functions that get it by reference:
// g++ 12 keeps an array in memory if a loop or a lambda's capture comes between, and would store all of it in every step.
template <int kRows, int kVectors>
using Sums = Floats[kRows * kVectors];

// Every third row has a pointer; the other two are reached by scaled addressing.
template <int kRows>
using RowPointers = const std::uint32_t * [(kRows + 2) / 3];

// Words of a sum of float32 products that are summed up on their own: the error of a long sum grows with its length, that of a sum of sums
// with the square root of it. Products of narrower numbers are rounded to those again.
template <class Format>
constexpr std::int64_t kStretch = std::is_same_v<Format, FloatFormat> ? 128 : std::numeric_limits<std::int64_t>::max();

template <int kVectors, int... kIndex>
[[gnu::always_inline]] inline void add_sums(const Floats (&sum)[sizeof...(kIndex)], float* to, std::integer_sequence<int, kIndex...>) {
  const auto at = [to](int index) { return to + index / kVectors * kPanelWidth + index % kVectors * kLanes; };
  (store(at(kIndex), load<Floats>(at(kIndex)) + sum[kIndex]), ...);
}

template <int kVectors, int... kIndex>
[[gnu::always_inline]] inline void store_sums(const Floats (&sum)[sizeof...(kIndex)], float* to, std::integer_sequence<int, kIndex...>) {
  (store(to + kIndex / kVectors * kPanelWidth + kIndex % kVectors * kLanes, sum[kIndex]), ...);
}

template <int... kIndex>
[[gnu::always_inline]] inline void clear_sums(Floats (&sum)[sizeof...(kIndex)], std::integer_sequence<int, kIndex...>) {
  ((sum[kIndex] = Floats{}), ...);
}

template <int... kIndex>
[[gnu::always_inline]] inline void set_pointers(const std::uint32_t* (&pointer)[sizeof...(kIndex)], const std::uint32_t* rows,
                                                std::int64_t stride, std::integer_sequence<int, kIndex...>) {
  ((pointer[kIndex] = rows + 3 * kIndex * stride), ...);
}

template <int... kIndex>
[[gnu::always_inline]] inline void advance_pointers(const std::uint32_t* (&pointer)[sizeof...(kIndex)], int words,
                                                    std::integer_sequence<int, kIndex...>) {
  ((pointer[kIndex] += words), ...);
}

// One word of each row times one line of the panel.
template <class Format, int kVectors, int kPointers, int... kIndex>
[[gnu::always_inline]] inline void add_products(Floats (&sum)[sizeof...(kIndex)], const std::uint32_t* (&pointer)[kPointers],
                                                std::int64_t stride, const std::uint32_t* line, int offset,
                                                std::integer_sequence<int, kIndex...>) {
  const auto first = load<Words>(line);
  const auto second = kVectors == 2 ? load<Words>(line + kLanes) : first;
  ((sum[kIndex] = multiply_words<Format>(sum[kIndex], Words{} + (pointer[kIndex / kVectors / 3] + kIndex / kVectors % 3 * stride)[offset],
                                         kIndex % kVectors == 0 ? first : second)),
   ...);
}

template <int... kIndex>
[[gnu::always_inline]] inline void prefetch_lines(const char* next, std::int64_t step, std::integer_sequence<int, kIndex...>) {
  (__builtin_prefetch(next + kIndex * step, 0, 2), ...);
}

// sums[row * kPanelWidth + lane] (+)= products over `words` words of rows[row * stride + word] and panel[word * kPanelWidth + lane].
// kPrefetches lines are fetched for every four words, 1 or 3.
template <class Format, int kRows, int kVectors, int kPrefetches>
[[gnu::noinline]] void multiply_tile(const std::uint32_t* rows, std::int64_t stride, const std::uint32_t* panel, std::int64_t words,
                                     float* sums, bool add, Prefetch& prefetch) {
  constexpr auto kAll = kIndices<kRows * kVectors>;
  constexpr auto kGroups = kIndices<(kRows + 2) / 3>;
  constexpr int kEach = kPrefetches / 3;
  Sums<kRows, kVectors> sum;
  RowPointers<kRows> pointer;
  set_pointers(pointer, rows, stride, kGroups);
  const char* next = prefetch.next;
  const auto ahead = prefetch.step;
  do {
    auto left = std::min(words, kStretch<Format>);
    words -= left;
    clear_sums(sum, kAll);
    for (; left >= 4; left -= 4) {
      add_products<Format, kVectors>(sum, pointer, stride, panel, 0, kAll);
      prefetch_lines(next, ahead, kIndices<std::max(1, kEach)>);
      add_products<Format, kVectors>(sum, pointer, stride, panel + kPanelWidth, 1, kAll);
      prefetch_lines(next + kEach * ahead, ahead, kIndices<kEach>);
      add_products<Format, kVectors>(sum, pointer, stride, panel + 2 * kPanelWidth, 2, kAll);
      prefetch_lines(next + 2 * kEach * ahead, ahead, kIndices<kEach>);
      add_products<Format, kVectors>(sum, pointer, stride, panel + 3 * kPanelWidth, 3, kAll);
      next += kPrefetches * ahead;
      panel += 4 * kPanelWidth;
      advance_pointers(pointer, 4, kGroups);
    }
    for (; left > 0; --left) {
      add_products<Format, kVectors>(sum, pointer, stride, panel, 0, kAll);
      panel += kPanelWidth;
      advance_pointers(pointer, 1, kGroups);
    }
    if (add) {
      add_sums<kVectors>(sum, sums, kAll);
    } else {
      store_sums<kVectors>(sum, sums, kAll);
    }
    add = true;
  } while (words > 0);
  prefetch.next = next;
  if (next >= prefetch.end) {
    prefetch.step = 0;
  }
}

// A tile of any height: whole tiles, then a few smaller ones.
template <class Format, int kVectors, int kPrefetches>
void multiply_rows(const std::uint32_t* rows, std::int64_t stride, std::int64_t count, const std::uint32_t* panel, std::int64_t words,
                   float* sums, bool add, Prefetch& prefetch) {
  const auto run = [&]<int kRows>(std::integral_constant<int, kRows>) {
    while (count >= kRows) {
      multiply_tile<Format, kRows, kVectors, kPrefetches>(rows, stride, panel, words, sums, add, prefetch);
      rows += kRows * stride;
      sums += kRows * kPanelWidth;
      count -= kRows;
    }
  };
  run(std::integral_constant<int, kTileRows>{});
  if constexpr (kTileRows == 12) {
    run(std::integral_constant<int, 8>{});
  }
  run(std::integral_constant<int, 4>{});
  run(std::integral_constant<int, 2>{});
  run(std::integral_constant<int, 1>{});
}

}  // namespace
}  // namespace neuron::kernels
