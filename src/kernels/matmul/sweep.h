// One row of A times B that lies contiguous along n ([K, N] row by row): y += x[k] * B[k], some rows of B at a time.
#pragma once

#include <algorithm>

#include "kernels/matmul/finish.h"
#include "kernels/matmul/formats.h"
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

// The products of one vector of columns.
template <class Format, int... kRow>
[[gnu::always_inline]] inline Floats add_row_products(Floats sum, const Words (&factor)[sizeof...(kRow)], const typename Format::Element* b,
                                                      std::int64_t stride, std::integer_sequence<int, kRow...>) {
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
    store(y + i, add_row_products<Format>(load<Floats>(y + i), factor, b + i, stride, kIndices<kRows>));
  }
  if (i < count) {
    typename Format::Element edge[kRows * Format::kStep * kLanes] = {};
    for (int line = 0; line < kRows * Format::kStep; ++line) {
      std::memcpy(edge + line * kLanes, b + line * stride + i, (count - i) * sizeof(typename Format::Element));
    }
    store(y + i, add_row_products<Format>(load<Floats>(y + i), factor, edge, kLanes, kIndices<kRows>));
  }
}

// y[0, count) = x * b for all k; y is padded to whole vectors.
template <class Format>
void sweep_all(const std::uint32_t* x, const Operand<Format>& b, std::int64_t column, std::int64_t count, std::int64_t k, float* y) {
  std::fill_n(y, round_up(count, kLanes), 0.0F);
  const auto whole = k / Format::kStep;  // words that have all their elements
  std::int64_t word = 0;
  for (; word + kSweepRows <= whole; word += kSweepRows) {
    sweep<Format, kSweepRows>(x + word, b.at(column, word * Format::kStep), b.k_stride, count, y);
  }
  for (; word < whole; ++word) {
    sweep<Format, 1>(x + word, b.at(column, word * Format::kStep), b.k_stride, count, y);
  }
  if (whole * Format::kStep < k) {
    // The last row has no partner.
    const auto* last = b.at(column, k - 1);
    for (std::int64_t i = 0; i < count; i += kLanes) {
      typename Format::Element edge[kLanes] = {};
      const typename Format::Element zeros[kLanes] = {};
      const auto width = std::min<std::int64_t>(kLanes, count - i);
      std::memcpy(edge, last + i, width * sizeof(typename Format::Element));
      store(y + i, multiply_words<Format>(load<Floats>(y + i), Words{} + x[word], Format::across(edge, zeros)));
    }
  }
}

template <class Format>
void multiply_by_sweeps(const Matmul& problem, const Operand<Format>& a, const Operand<Format>& b, const Operand<Format>& gate,
                        Threads& threads) {
  // y stays in the first level cache.
  constexpr std::int64_t kChunk = 1024;
  const auto words = words_of<Format>(problem.k);
  auto* x = static_cast<std::uint32_t*>(scratch(Scratch::kShared, round_up(words, kLanes) * sizeof(std::uint32_t)));
  pack<Format, Packed::kRows>(a, 0, 1, 0, problem.k, x, round_up(words, kLanes));
  const Finisher finisher(problem);
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(problem.n, 64, member, count);
    auto* sums = static_cast<float*>(scratch(Scratch::kTile, 2 * kChunk * sizeof(float)));
    auto* gates = sums + kChunk;
    for (auto column = begin; column < end; column += kChunk) {
      const auto width = std::min(end - column, kChunk);
      sweep_all<Format>(x, b, column, width, problem.k, sums);
      if (gate.data != nullptr) {
        sweep_all<Format>(x, gate, column, width, problem.k, gates);
      }
      finisher.finish(0, 1, column, width, sums, gate.data != nullptr ? gates : nullptr, kChunk);
    }
  });
}

}  // namespace
}  // namespace neuron::kernels
