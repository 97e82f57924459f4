// Few rows of A times columns of B that lie contiguous along k (a weight [N, K]): dot products, each weight read once, where it is.
#pragma once

#include <algorithm>

#include "kernels/matmul/finish.h"
#include "kernels/matmul/formats.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

// Most rows that one pass over the weights serves.
constexpr int kDotRows = kRegisters == 32 ? 8 : 4;

// Columns that are computed together for a number of rows, so that sums and operands fit the registers.
constexpr int dot_columns(int rows) {
  if (kRegisters == 32) {
    constexpr int kColumns[] = {0, 8, 8, 6, 6, 4, 4, 3, 3};
    return kColumns[rows];
  }
  constexpr int kColumns[] = {0, 6, 4, 3, 2};
  return kColumns[rows];
}

template <int kPairs, int... kIndex>
[[gnu::always_inline]] inline void fold_lanes(Floats (&level)[kLanes], std::integer_sequence<int, kIndex...>) {
  ((level[kIndex] = interleave_lower(level[kIndex], level[kIndex + kPairs]) + interleave_upper(level[kIndex], level[kIndex + kPairs])),
   ...);
}

template <int kFirst, int kCount, int... kIndex>
[[gnu::always_inline]] inline void take_sums(Floats (&level)[kLanes], const Floats (&sums)[kCount], std::integer_sequence<int, kIndex...>) {
  ((level[kIndex] = kFirst + kIndex < kCount ? sums[kFirst + kIndex < kCount ? kFirst + kIndex : 0] : Floats{}), ...);
}

// out[i] = the sum of the lanes of sums[kFirst + i]. Halves of two vectors are added to one vector, until one vector holds all sums:
// interleaving is a perfect shuffle, so after all rounds lane i holds the sum of vector i.
template <int kFirst, int kCount>
[[gnu::always_inline]] inline void sum_lanes(const Floats (&sums)[kCount], float* out) {
  Floats level[kLanes];
  take_sums<kFirst>(level, sums, kIndices<kLanes>);
  if constexpr (kLanes >= 16) {
    fold_lanes<8>(level, kIndices<8>);
  }
  if constexpr (kLanes >= 8) {
    fold_lanes<4>(level, kIndices<4>);
  }
  fold_lanes<2>(level, kIndices<2>);
  fold_lanes<1>(level, kIndices<1>);
  store(out, level[0]);
  if constexpr (kFirst + kLanes < kCount) {
    sum_lanes<kFirst + kLanes>(sums, out + kLanes);
  }
}

// A, converted once: for each row, the vectors of along_dot in order, with zeros behind the end.
template <class Format>
struct DotRows {
  const std::uint32_t* words;
  std::int64_t stride;  // words between rows
};

template <class Format>
DotRows<Format> convert_dot_rows(const Operand<Format>& a, std::int64_t rows, std::int64_t k) {
  constexpr auto kStepWords = std::int64_t{Format::kDotParts} * kLanes;
  const auto steps = (k + Format::kDotStep - 1) / Format::kDotStep;
  if (Format::kPlain && a.k_stride == 1 && k % Format::kDotStep == 0 && (a.row_stride % Format::kStep == 0 || rows == 1)) {
    return {reinterpret_cast<const std::uint32_t*>(a.data), a.row_stride / Format::kStep};
  }
  const auto stride = steps * kStepWords;
  auto* words = static_cast<std::uint32_t*>(scratch(Scratch::kShared, rows * stride * sizeof(std::uint32_t)));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto begin = step * Format::kDotStep;
      const auto count = std::min<std::int64_t>(Format::kDotStep, k - begin);
      typename Format::Element elements[Format::kDotStep] = {};
      for (std::int64_t i = 0; i < count; ++i) {
        elements[i] = *a.at(row, begin + i);
      }
      Words parts[Format::kDotParts];
      Format::along_dot(elements, parts);
      for (int part = 0; part < Format::kDotParts; ++part) {
        store(words + row * stride + step * kStepWords + part * kLanes, parts[part]);
      }
    }
  }
  return {words, stride};
}

template <int kParts, int... kIndex>
[[gnu::always_inline]] inline void load_row_words(Words (&value)[sizeof...(kIndex)], const std::uint32_t* from, std::int64_t stride,
                                                  std::integer_sequence<int, kIndex...>) {
  ((value[kIndex] = load<Words>(from + kIndex / kParts * stride + kIndex % kParts * kLanes)), ...);
}

template <int... kIndex>
[[gnu::always_inline]] inline void clear_dots(Floats (&sum)[sizeof...(kIndex)], std::integer_sequence<int, kIndex...>) {
  ((sum[kIndex] = Floats{}), ...);
}

// One step along k of one column, for all rows.
template <class Format, int kColumns, int kColumn, int... kRow>
[[gnu::always_inline]] inline void add_column(Floats (&sum)[sizeof...(kRow) * kColumns],
                                              const Words (&value)[sizeof...(kRow) * Format::kDotParts], const typename Format::Element* b,
                                              std::integer_sequence<int, kRow...>) {
  constexpr int kParts = Format::kDotParts;
  Words parts[kParts];
  Format::along_dot(b, parts);
  ((sum[kRow * kColumns + kColumn] = multiply_words<Format>(sum[kRow * kColumns + kColumn], value[kRow * kParts], parts[0])), ...);
  if constexpr (kParts == 2) {
    ((sum[kRow * kColumns + kColumn] = multiply_words<Format>(sum[kRow * kColumns + kColumn], value[kRow * kParts + 1], parts[1])), ...);
  }
}

template <class Format, int kRows, int kSums, int kValues, int... kColumn>
[[gnu::always_inline]] inline void add_columns(Floats (&sum)[kSums], const Words (&value)[kValues], const typename Format::Element* b,
                                               std::int64_t b_stride, std::integer_sequence<int, kColumn...>) {
  (add_column<Format, sizeof...(kColumn), kColumn>(sum, value, b + kColumn * b_stride, kIndices<kRows>), ...);
}

// Lines of columns that come later.
template <class Element, int... kColumn>
[[gnu::always_inline]] inline void prefetch_columns(const Element* b, std::int64_t b_stride, std::integer_sequence<int, kColumn...>) {
  (__builtin_prefetch(b + kColumn * b_stride, 0, 3), ...);
}

// How far ahead memory is read, in bytes: the time to compute them covers its latency.
constexpr std::int64_t kDotAhead = 24 << 10;

// sums[row * stride + column] for kRows rows and kColumns columns that begin at `b`.
template <class Format, int kRows, int kColumns>
[[gnu::noinline]] void dot_tile(const DotRows<Format>& a, const typename Format::Element* b, std::int64_t b_stride, std::int64_t k,
                                float* sums, std::int64_t stride) {
  constexpr int kParts = Format::kDotParts;
  constexpr auto kAllRows = kIndices<kRows * kParts>;
  constexpr auto kAllColumns = kIndices<kColumns>;
  Floats sum[kRows * kColumns];
  clear_dots(sum, kIndices<kRows * kColumns>);
  Words value[kRows * kParts];
  const auto* words = a.words;
  const auto tile_bytes = kColumns * b_stride * static_cast<std::int64_t>(sizeof(typename Format::Element));
  const auto ahead = std::max<std::int64_t>(1, kDotAhead / std::max<std::int64_t>(1, tile_bytes)) * kColumns * b_stride;
  std::int64_t step = 0;
  for (; step + Format::kDotStep <= k; step += Format::kDotStep) {
    prefetch_columns(b + step + ahead, b_stride, kAllColumns);
    load_row_words<kParts>(value, words, a.stride, kAllRows);
    add_columns<Format, kRows>(sum, value, b + step, b_stride, kAllColumns);
    words += kParts * kLanes;
  }
  if (step < k) {
    alignas(64) typename Format::Element edge[kColumns * Format::kDotStep] = {};
    for (int column = 0; column < kColumns; ++column) {
      std::memcpy(edge + column * Format::kDotStep, b + column * b_stride + step, (k - step) * sizeof(typename Format::Element));
    }
    load_row_words<kParts>(value, words, a.stride, kAllRows);
    add_columns<Format, kRows>(sum, value, edge, Format::kDotStep, kAllColumns);
  }
  float flat[(kRows * kColumns + kLanes - 1) / kLanes * kLanes];
  sum_lanes<0>(sum, flat);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      sums[row * stride + column] = flat[row * kColumns + column];
    }
  }
}

// One row: the weights are read as one stream, which memory serves best, with several sums for one column.
constexpr int kStreamSums = 8;
constexpr std::int64_t kStreamAhead = 4096;  // bytes

template <class Format, int kStep, int kValues>
[[gnu::always_inline]] inline void add_step(Floats (&sum)[kStreamSums], const Words (&value)[kValues], const typename Format::Element* b) {
  constexpr int kParts = Format::kDotParts;
  Words parts[kParts];
  Format::along_dot(b, parts);
  sum[kStep] = multiply_words<Format>(sum[kStep], value[kStep * kParts], parts[0]);
  if constexpr (kParts == 2) {
    sum[kStep] = multiply_words<Format>(sum[kStep], value[kStep * kParts + 1], parts[1]);
  }
}

template <class Format, int... kIndex>
[[gnu::always_inline]] inline void add_stream(Floats (&sum)[kStreamSums], const std::uint32_t* a, const typename Format::Element* b,
                                              std::integer_sequence<int, kIndex...>) {
  constexpr int kParts = Format::kDotParts;
  constexpr int kElementsPerLine = 64 / static_cast<int>(sizeof(typename Format::Element));
  constexpr int kLines = kStreamSums * Format::kDotStep / kElementsPerLine;
  ((kIndex < kLines ? __builtin_prefetch(reinterpret_cast<const char*>(b) + kStreamAhead + 64 * kIndex, 0, 3) : void()), ...);
  Words value[kStreamSums * kParts];
  load_row_words<kParts>(value, a, kParts * kLanes, kIndices<kStreamSums * kParts>);
  (add_step<Format, kIndex>(sum, value, b + kIndex * Format::kDotStep), ...);
}

template <class Format>
[[gnu::always_inline]] inline Floats dot_stream(const std::uint32_t* a, const typename Format::Element* b, std::int64_t k) {
  constexpr std::int64_t kWordsPerStep = Format::kDotParts * kLanes;
  Floats sum[kStreamSums];
  clear_dots(sum, kIndices<kStreamSums>);
  std::int64_t i = 0;
  for (; i + kStreamSums * Format::kDotStep <= k; i += kStreamSums * Format::kDotStep) {
    add_stream<Format>(sum, a, b + i, kIndices<kStreamSums>);
    a += kStreamSums * kWordsPerStep;
  }
  for (; i < k; i += Format::kDotStep) {
    Words value[Format::kDotParts];
    load_row_words<Format::kDotParts>(value, a, 0, kIndices<Format::kDotParts>);
    if (i + Format::kDotStep <= k) {
      add_step<Format, 0>(sum, value, b + i);
    } else {
      alignas(64) typename Format::Element edge[Format::kDotStep] = {};
      std::memcpy(edge, b + i, (k - i) * sizeof(typename Format::Element));
      add_step<Format, 0>(sum, value, edge);
    }
    a += kWordsPerStep;
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

template <class Format>
[[gnu::noinline]] void dot_one_row(const DotRows<Format>& a, const Operand<Format>& b, std::int64_t begin, std::int64_t end, std::int64_t k,
                                   float* sums) {
  for (auto column = begin; column < end; column += kLanes) {
    alignas(64) float lanes[kLanes * kLanes];
    const auto count = std::min<std::int64_t>(kLanes, end - column);
    for (std::int64_t i = 0; i < count; ++i) {
      store(lanes + i * kLanes, dot_stream<Format>(a.words, b.at(column + i, 0), k));
    }
    Floats partial[kLanes];
    load_lines(partial, lanes, sizeof(Floats), kIndices<kLanes>);
    float flat[kLanes];
    sum_lanes<0>(partial, flat);
    std::copy_n(flat, count, sums + column - begin);
  }
}

template <class Format, int kRows>
void dot_columns_of_rows(const DotRows<Format>& a, const Operand<Format>& b, std::int64_t begin, std::int64_t end, std::int64_t k,
                         float* sums, std::int64_t stride) {
  if constexpr (kRows == 1) {
    dot_one_row(a, b, begin, end, k, sums);
    return;
  }
  constexpr int kColumns = dot_columns(kRows);
  auto column = begin;
  for (; column + kColumns <= end; column += kColumns) {
    dot_tile<Format, kRows, kColumns>(a, b.at(column, 0), b.row_stride, k, sums + column - begin, stride);
  }
  for (; column < end; ++column) {
    dot_tile<Format, kRows, 1>(a, b.at(column, 0), b.row_stride, k, sums + column - begin, stride);
  }
}

template <class Format, int... kIndex>
void dot_group(const DotRows<Format>& a, int rows, const Operand<Format>& b, std::int64_t begin, std::int64_t end, std::int64_t k,
               float* sums, std::int64_t stride, std::integer_sequence<int, kIndex...>) {
  ((rows == kIndex + 1 ? dot_columns_of_rows<Format, kIndex + 1>(a, b, begin, end, k, sums, stride) : void()), ...);
}

// Any number of rows, in groups that one pass over the columns serves.
template <class Format>
void dot_rows(DotRows<Format> a, std::int64_t rows, const Operand<Format>& b, std::int64_t begin, std::int64_t end, std::int64_t k,
              float* sums, std::int64_t stride) {
  while (rows > 0) {
    const int group = static_cast<int>(std::min<std::int64_t>(rows, kDotRows));
    dot_group<Format>(a, group, b, begin, end, k, sums, stride, kIndices<kDotRows>);
    a.words += group * a.stride;
    sums += group * stride;
    rows -= group;
  }
}

// The whole product, B (and the gate) contiguous along k.
template <class Format>
void multiply_by_dots(const Matmul& problem, const Operand<Format>& a, const Operand<Format>& b, const Operand<Format>& gate,
                      Threads& threads) {
  // Divisible by all counts of columns, so that only the last chunk of a matrix has an edge.
  constexpr std::int64_t kChunk = 48;
  const auto words = convert_dot_rows<Format>(a, problem.m, problem.k);
  const Finisher finisher(problem);
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(problem.n, kChunk, member, count);
    auto* sums = static_cast<float*>(scratch(Scratch::kTile, 2 * problem.m * kChunk * sizeof(float)));
    auto* gates = sums + problem.m * kChunk;
    for (auto column = begin; column < end; column += kChunk) {
      const auto stop = std::min(end, column + kChunk);
      dot_rows<Format>(words, problem.m, b, column, stop, problem.k, sums, kChunk);
      if (gate.data != nullptr) {
        dot_rows<Format>(words, problem.m, gate, column, stop, problem.k, gates, kChunk);
      }
      finisher.finish(0, problem.m, column, stop - column, sums, gate.data != nullptr ? gates : nullptr, kChunk);
    }
  });
}

}  // namespace
}  // namespace neuron::kernels
