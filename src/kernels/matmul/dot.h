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

// out[i] = the sum of the lanes of sums[i]. Halves of two vectors are added to one vector, until one vector holds all sums.
template <int kCount>
[[gnu::always_inline]] inline void sum_lanes(const Floats (&sums)[kCount], float* out) {
  unrolled<(kCount + kLanes - 1) / kLanes>([&](auto block) __attribute__((always_inline)) {
    constexpr int kFirst = block * kLanes;
    Floats level[kLanes];
    unrolled<kLanes>([&](auto i) __attribute__((always_inline)) {
      if constexpr (kFirst + i < kCount) {
        level[i] = sums[kFirst + i];
      } else {
        level[i] = Floats{};
      }
    });
    // Interleaving is a perfect shuffle: after all rounds, lane i holds the sum of vector i.
    constexpr int kRounds = kLanes == 16 ? 4 : kLanes == 8 ? 3 : 2;
    unrolled<kRounds>([&](auto round) __attribute__((always_inline)) {
      constexpr int kPairs = kLanes >> (round + 1);
      unrolled<kPairs>([&](auto i) __attribute__((always_inline)) {
        level[i] = interleave_lower(level[i], level[i + kPairs]) + interleave_upper(level[i], level[i + kPairs]);
      });
    });
    store(out + kFirst, level[0]);
  });
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

// sums[row * stride + column] for kRows rows and kColumns columns that begin at `b`.
template <class Format, int kRows, int kColumns>
[[gnu::noinline]] void dot_tile(const DotRows<Format>& a, const typename Format::Element* b, std::int64_t b_stride, std::int64_t k,
                                float* sums, std::int64_t stride) {
  constexpr int kParts = Format::kDotParts;
  Floats sum[kRows * kColumns];
  unrolled<kRows * kColumns>([&](auto i) __attribute__((always_inline)) { sum[i] = Floats{}; });
  const auto* rows = a.words;
  const auto multiply = [&](const std::uint32_t* at, const auto& column_at) __attribute__((always_inline)) {
    Words value[kRows * kParts];
    if constexpr (kRows > 1) {
      unrolled<kRows * kParts>([&](auto i) __attribute__((always_inline)) {
        value[i] = load<Words>(at + i / kParts * a.stride + i % kParts * kLanes);
      });
    } else {
      unrolled<kParts>([&](auto i) __attribute__((always_inline)) { value[i] = load<Words>(at + i * kLanes); });
    }
    unrolled<kColumns>([&](auto column) __attribute__((always_inline)) {
      Words parts[kParts];
      Format::along_dot(column_at(column), parts);
      unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
        unrolled<kParts>([&](auto part) __attribute__((always_inline)) {
          sum[row * kColumns + column] = multiply_words<Format>(sum[row * kColumns + column], value[row * kParts + part], parts[part]);
        });
      });
    });
  };
  const auto whole = k / Format::kDotStep;
  // The same place in the columns that come next.
  const auto ahead = kColumns * b_stride;
  for (std::int64_t step = 0; step < whole; ++step) {
    unrolled<kColumns>([&](auto column) __attribute__((always_inline)) {
      __builtin_prefetch(b + column * b_stride + step * Format::kDotStep + ahead, 0, 3);
    });
    multiply(rows + step * kParts * kLanes, [&](auto column) __attribute__((always_inline)) {
      return b + column * b_stride + step * Format::kDotStep;
    });
  }
  if (const auto rest = k - whole * Format::kDotStep; rest != 0) {
    alignas(64) typename Format::Element edge[kColumns * Format::kDotStep] = {};
    for (int column = 0; column < kColumns; ++column) {
      std::memcpy(edge + column * Format::kDotStep, b + column * b_stride + whole * Format::kDotStep,
                  rest * sizeof(typename Format::Element));
    }
    multiply(rows + whole * kParts * kLanes, [&](auto column) __attribute__((always_inline)) { return edge + column * Format::kDotStep; });
  }
  float flat[(kRows * kColumns + kLanes - 1) / kLanes * kLanes];
  sum_lanes(sum, flat);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      sums[row * stride + column] = flat[row * kColumns + column];
    }
  }
}

template <class Format, int kRows>
void dot_columns_of_rows(const DotRows<Format>& a, const Operand<Format>& b, std::int64_t begin, std::int64_t end, std::int64_t k, float* sums,
                         std::int64_t stride) {
  constexpr int kColumns = dot_columns(kRows);
  auto column = begin;
  for (; column + kColumns <= end; column += kColumns) {
    dot_tile<Format, kRows, kColumns>(a, b.at(column, 0), b.row_stride, k, sums + column - begin, stride);
  }
  for (; column < end; ++column) {
    dot_tile<Format, kRows, 1>(a, b.at(column, 0), b.row_stride, k, sums + column - begin, stride);
  }
}

// Any number of rows, in groups that one pass over the columns serves.
template <class Format>
void dot_rows(DotRows<Format> a, std::int64_t rows, const Operand<Format>& b, std::int64_t begin, std::int64_t end, std::int64_t k, float* sums,
              std::int64_t stride) {
  while (rows > 0) {
    const int group = static_cast<int>(std::min<std::int64_t>(rows, kDotRows));
    unrolled<kDotRows>([&](auto i) __attribute__((always_inline)) {
      if (group == i + 1) {
        dot_columns_of_rows<Format, i + 1>(a, b, begin, end, k, sums, stride);
      }
    });
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
