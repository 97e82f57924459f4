// Few rows of A times B that lies contiguous along n ([K, N] row by row): y += x[k] * B[k], some rows of B at a time.
#pragma once

#include <algorithm>

#include "kernels/matmul/finish.h"
#include "kernels/matmul/pack.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

// Rows of B in a pass over y: their sum is made in registers.
constexpr int kSweepRows = 8;

template <int... kRow>
[[gnu::always_inline]] inline void broadcast_words(Words (&factor)[sizeof...(kRow)], const std::uint32_t* x,
                                                   std::integer_sequence<int, kRow...>) {
  ((factor[kRow] = Words{} + x[kRow]), ...);
}

// The same columns of the rows that come next.
template <class Element, int... kLine>
[[gnu::always_inline]] inline void prefetch_rows(const Element* b, std::int64_t stride, std::integer_sequence<int, kLine...>) {
  (__builtin_prefetch(b + (kLine + static_cast<std::int64_t>(sizeof...(kLine))) * stride, 0, 3), ...);
}

// The products of one vector of columns. They are summed up before the sum of all is touched, which keeps the error of a long sum small.
template <class Format, int... kRow>
[[gnu::always_inline]] inline Floats row_products(const Words (&factor)[sizeof...(kRow)], const typename Format::Element* b,
                                                  std::int64_t stride, std::integer_sequence<int, kRow...>) {
  Floats sum{};
  ((sum = multiply_words<Format>(sum, factor[kRow],
                                 Format::across(b + kRow * Format::kStep * stride, b + (kRow * Format::kStep + 1) * stride))),
   ...);
  return sum;
}

// y[0, count) += sum over kRows words of x[row] * b[row * stride + i].
template <class Format, int kRows>
[[gnu::noinline]] void sweep(const std::uint32_t* x, const typename Format::Element* b, std::int64_t stride, std::int64_t count, float* y) {
  Words factor[kRows];
  broadcast_words(factor, x, kIndices<kRows>);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    prefetch_rows(b + i, stride, kIndices<kRows * Format::kStep>);
    store(y + i, load<Floats>(y + i) + row_products<Format>(factor, b + i, stride, kIndices<kRows>));
  }
  if (i < count) {
    typename Format::Element edge[kRows * Format::kStep * kLanes] = {};
    for (int line = 0; line < kRows * Format::kStep; ++line) {
      std::memcpy(edge + line * kLanes, b + line * stride + i, (count - i) * sizeof(typename Format::Element));
    }
    store(y + i, load<Floats>(y + i) + row_products<Format>(factor, edge, kLanes, kIndices<kRows>));
  }
}

// Rows of A.
struct SweptRows {
  const std::uint32_t* words;
  std::int64_t stride;
  std::int64_t count;
};

// y[row * kSweepColumns + i] = x[row] * b for `count` columns, all rows and all k. The rows of B that are swept are in the first level
// cache from the second row of A on.
constexpr std::int64_t kSweepColumns = 1024;

// Words that are summed up in y before they are added to the sum of all, for the error's sake as in tile.h.
constexpr std::int64_t kSweptWords = 512;

// As sweep_all, for the words [begin, end) of k.
template <class Format>
void sweep_words(const SweptRows& x, const Operand<Format>& b, std::int64_t column, std::int64_t count, std::int64_t begin,
                 std::int64_t end, std::int64_t k, float* y) {
  std::fill_n(y, x.count * kSweepColumns, 0.0F);
  const auto whole = std::min(end, k / Format::kStep);  // words that have all their elements
  auto word = begin;
  for (; word + kSweepRows <= whole; word += kSweepRows) {
    for (std::int64_t row = 0; row < x.count; ++row) {
      sweep<Format, kSweepRows>(x.words + row * x.stride + word, b.at(column, word * Format::kStep), b.k_stride, count,
                                y + row * kSweepColumns);
    }
  }
  for (; word < whole; ++word) {
    for (std::int64_t row = 0; row < x.count; ++row) {
      sweep<Format, 1>(x.words + row * x.stride + word, b.at(column, word * Format::kStep), b.k_stride, count, y + row * kSweepColumns);
    }
  }
  if (whole < end) {
    // The last row of B has no partner.
    const auto* last = b.at(column, k - 1);
    for (std::int64_t i = 0; i < count; i += kLanes) {
      typename Format::Element edge[kLanes] = {};
      const typename Format::Element zeros[kLanes] = {};
      const auto width = std::min<std::int64_t>(kLanes, count - i);
      std::memcpy(edge, last + i, width * sizeof(typename Format::Element));
      for (std::int64_t row = 0; row < x.count; ++row) {
        auto* at = y + row * kSweepColumns + i;
        store(at, multiply_words<Format>(load<Floats>(at), Words{} + x.words[row * x.stride + word], Format::across(edge, zeros)));
      }
    }
  }
}

// `part` is room for as many sums as y.
template <class Format>
void sweep_all(const SweptRows& x, const Operand<Format>& b, std::int64_t column, std::int64_t count, std::int64_t k, float* y,
               float* part) {
  const auto words = words_of<Format>(k);
  sweep_words<Format>(x, b, column, count, 0, std::min(words, kSweptWords), k, y);
  for (std::int64_t word = kSweptWords; word < words; word += kSweptWords) {
    sweep_words<Format>(x, b, column, count, word, std::min(words, word + kSweptWords), k, part);
    for (std::int64_t i = 0; i < x.count * kSweepColumns; i += kLanes) {
      store(y + i, load<Floats>(y + i) + load<Floats>(part + i));
    }
  }
}

template <class Format>
void multiply_by_sweeps(const Matmul& problem, const Operand<Format>& a, const Operand<Format>& b, const Operand<Format>& gate,
                        Threads& threads) {
  const auto stride = round_up(words_of<Format>(problem.k), kLanes);
  auto* words = static_cast<std::uint32_t*>(scratch(Scratch::kShared, problem.m * stride * sizeof(std::uint32_t)));
  pack<Format, Packed::kRows>(a, 0, problem.m, 0, problem.k, words, stride);
  const SweptRows x{words, stride, problem.m};
  const Finisher finisher(problem);
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(problem.n, 64, member, count);
    auto* sums = static_cast<float*>(scratch(Scratch::kTile, 3 * problem.m * kSweepColumns * sizeof(float)));
    auto* gates = sums + problem.m * kSweepColumns;
    auto* part = gates + problem.m * kSweepColumns;
    for (auto column = begin; column < end; column += kSweepColumns) {
      const auto width = std::min(end - column, kSweepColumns);
      sweep_all<Format>(x, b, column, width, problem.k, sums, part);
      if (gate.data != nullptr) {
        sweep_all<Format>(x, gate, column, width, problem.k, gates, part);
      }
      finisher.finish(0, problem.m, column, width, sums, gate.data != nullptr ? gates : nullptr, kSweepColumns);
    }
  });
}

}  // namespace
}  // namespace neuron::kernels
