// Few rows of A times columns of B that lie contiguous along k (a weight [N, K]): dot products, each weight read once, where it is.
#pragma once

#include <algorithm>

#include "kernels/matmul/finish.h"
#include "kernels/matmul/formats.h"
#include "kernels/matmul/tile.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

// Most rows that one pass over the weights serves.
constexpr int kDotRows = kRegisters == 32 ? 8 : 4;

// What is summed up in registers for a number of rows: so many columns, and as many sums for each as steps, which take turns along k.
// One column reads memory as one stream, which is fastest; more columns use what is read of A more often.
struct DotShape {
  int columns;
  int steps;
};
constexpr DotShape dot_shape(int rows) {
  if (kRegisters == 32) {
    constexpr DotShape kShapes[] = {{}, {1, 8}, {1, 8}, {6, 1}, {6, 1}, {4, 1}, {4, 1}, {3, 1}, {3, 1}};
    return kShapes[rows];
  }
  constexpr DotShape kShapes[] = {{}, {1, 8}, {4, 1}, {3, 1}, {2, 1}};
  return kShapes[rows];
}

// How far ahead a stream is fetched, in bytes, into the second level cache: on Zen 4 a fetch into the first takes the lines that reads need
// (0.74 of the bandwidth), and so does one beyond the page that the hardware's own prefetch works on.
constexpr std::int64_t kStreamAhead = 2048;

// Columns whose sums are kept until all of k has been read; divisible by all those counts, so that only the last chunk of a matrix has an
// edge.
constexpr std::int64_t kDotChunk = 24;

// Words of A that a pass over the columns of a chunk uses: half of the first level cache.
constexpr std::int64_t kDotBlockWords = 4 << 10;

// One stage of a butterfly: vector i of the result holds the sums of two lanes each, of vector i in the lanes without bit kBit and of
// vector i + kBit in those with it.
template <int kBit, int... kLane>
[[gnu::always_inline]] inline Floats fold_pair(Floats a, Floats b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, ((kLane & kBit) == 0 ? kLane : kLanes + kLane)...) +
         __builtin_shufflevector(a, b, ((kLane & kBit) == 0 ? kLane + kBit : kLanes + kLane - kBit)...);
}

template <int kBit, int... kIndex>
[[gnu::always_inline]] inline void fold_lanes(Floats (&vector)[kLanes], std::integer_sequence<int, kIndex...>) {
  ((vector[kIndex] = fold_pair<kBit>(vector[kIndex], vector[kIndex + kBit], kIndices<kLanes>)), ...);
}

// out[i] = the sum of the lanes of vector i of kLanes vectors.
inline void sum_lanes(const float* vectors, float* out) {
  Floats level[kLanes];
  load_lines(level, vectors, sizeof(Floats), kIndices<kLanes>);
  if constexpr (kLanes >= 16) {
    fold_lanes<8>(level, kIndices<8>);
  }
  if constexpr (kLanes >= 8) {
    fold_lanes<4>(level, kIndices<4>);
  }
  fold_lanes<2>(level, kIndices<2>);
  fold_lanes<1>(level, kIndices<1>);
  store(out, level[0]);
}

// A, converted once: for each step along k, the vectors of along_dot of all rows in order, with zeros behind the end. So a tile reads it as
// one stream, whose lines never compete for one set of the first level cache.
struct DotRows {
  const std::uint32_t* words;
  std::int64_t rows;
};

template <class Format>
constexpr std::int64_t kStepWords = std::int64_t{Format::kDotParts} * kLanes;  // of one row

template <class Format>
std::int64_t dot_steps(std::int64_t k) {
  return (k + Format::kDotStep - 1) / Format::kDotStep;
}

template <class Format>
void convert_dot_rows(const Operand<Format>& a, std::int64_t row, std::int64_t rows, std::int64_t k, std::uint32_t* words) {
  for (std::int64_t step = 0; step < dot_steps<Format>(k); ++step) {
    const auto begin = step * Format::kDotStep;
    const auto count = std::min<std::int64_t>(Format::kDotStep, k - begin);
    for (std::int64_t r = 0; r < rows; ++r) {
      Words parts[Format::kDotParts];
      if (count == Format::kDotStep && a.k_stride == 1) {
        Format::along_dot(a.at(row + r, begin), parts);
      } else {
        typename Format::Element elements[Format::kDotStep] = {};
        for (std::int64_t i = 0; i < count; ++i) {
          elements[i] = *a.at(row + r, begin + i);
        }
        Format::along_dot(elements, parts);
      }
      for (int part = 0; part < Format::kDotParts; ++part, words += kLanes) {
        store(words, parts[part]);
      }
    }
  }
}

// A tile's sums within those of its chunk of columns.
template <int kColumns>
constexpr std::int64_t dot_place(int index) {
  return (index / kColumns * kDotChunk + index % kColumns) * kLanes;
}

template <int kColumns, int kSums, int... kIndex>
[[gnu::always_inline]] inline void add_stored(Floats (&sum)[kSums], const float* from, std::integer_sequence<int, kIndex...>) {
  ((sum[kIndex] = sum[kIndex] + load<Floats>(from + dot_place<kColumns>(kIndex))), ...);
}

template <int kColumns, int kSums, int... kIndex>
[[gnu::always_inline]] inline void store_dots(const Floats (&sum)[kSums], float* to, std::integer_sequence<int, kIndex...>) {
  (store(to + dot_place<kColumns>(kIndex), sum[kIndex]), ...);
}

template <int... kIndex>
[[gnu::always_inline]] inline void clear_dots(Floats (&sum)[sizeof...(kIndex)], std::integer_sequence<int, kIndex...>) {
  ((sum[kIndex] = Floats{}), ...);
}

// One vector of one row times those of all columns.
template <class Format, int kRow, int kFirst, int kPart, int kSums, int... kColumn>
[[gnu::always_inline]] inline void add_row(Floats (&sum)[kSums], const std::uint32_t* words,
                                           const Words (&part)[sizeof...(kColumn)][Format::kDotParts],
                                           std::integer_sequence<int, kColumn...>) {
  const auto value = load<Words>(words + (kRow * Format::kDotParts + kPart) * kLanes);
  ((sum[kFirst + kColumn] = multiply_words<Format>(sum[kFirst + kColumn], value, part[kColumn][kPart])), ...);
}

template <class Format, int... kColumn>
[[gnu::always_inline]] inline void load_columns(Words (&part)[sizeof...(kColumn)][Format::kDotParts], const typename Format::Element* b,
                                                std::int64_t b_stride, std::integer_sequence<int, kColumn...>) {
  (Format::along_dot(b + kColumn * b_stride, part[kColumn]), ...);
}

// One step along k, added to the sums from kFirst on. The columns are in registers, each vector of A passes through one.
template <class Format, int kColumns, int kFirst, int kSums, int... kRow>
[[gnu::always_inline]] inline void add_dots(Floats (&sum)[kSums], const std::uint32_t* words, const typename Format::Element* b,
                                            std::int64_t b_stride, std::integer_sequence<int, kRow...>) {
  Words part[kColumns][Format::kDotParts];
  load_columns<Format>(part, b, b_stride, kIndices<kColumns>);
  (add_row<Format, kRow, kFirst + kRow * kColumns, 0>(sum, words, part, kIndices<kColumns>), ...);
  if constexpr (Format::kDotParts == 2) {
    (add_row<Format, kRow, kFirst + kRow * kColumns, 1>(sum, words, part, kIndices<kColumns>), ...);
  }
}

template <class Format, int kRows, int kColumns, int kSums, int... kStep>
[[gnu::always_inline]] inline void add_steps(Floats (&sum)[kSums], const std::uint32_t* words, const typename Format::Element* b,
                                             std::int64_t b_stride, std::integer_sequence<int, kStep...>) {
  (add_dots<Format, kColumns, kStep * kRows * kColumns>(sum, words + kStep * kRows * kStepWords<Format>, b + kStep * Format::kDotStep,
                                                        b_stride, kIndices<kRows>),
   ...);
}

// sum[i] += sum[i + kFrom].
template <int kFrom, int kSums, int... kIndex>
[[gnu::always_inline]] inline void join_sums(Floats (&sum)[kSums], std::integer_sequence<int, kIndex...>) {
  ((sum[kIndex] = sum[kIndex] + sum[kIndex + kFrom]), ...);
}
template <int kCount, int kSteps, int kSums>
[[gnu::always_inline]] inline void join_steps(Floats (&sum)[kSums]) {
  if constexpr (kSteps > 1) {
    constexpr int kHalf = (kSteps + 1) / 2;
    join_sums<kHalf * kCount>(sum, kIndices<(kSteps - kHalf) * kCount>);
    join_steps<kCount, kHalf>(sum);
  }
}

// Lines that are fetched while a tile is computed: some for every step along k.
struct DotAhead {
  std::int64_t first;    // bytes from the tile's first element
  std::int64_t between;  // between the lines of a step
  std::int64_t next;     // from a step to the next
};

// The columns that a tile works on, and the part of k.
template <class Format>
struct DotColumns {
  const typename Format::Element* b;
  std::int64_t stride;
  std::int64_t count;  // elements along k
};

// sums[row][column of the chunk] (+)= kRows rows times kColumns columns, as vectors whose lanes are to be added.
template <class Format, int kRows, int kColumns, int kSteps>
[[gnu::noinline]] void dot_tile(const std::uint32_t* words, const DotColumns<Format>& columns, float* sums, bool add,
                                const DotAhead& ahead) {
  using Element = typename Format::Element;
  constexpr int kCount = kRows * kColumns;
  Floats sum[kCount * kSteps];
  clear_dots(sum, kIndices<kCount * kSteps>);
  const auto* b = columns.b;
  const auto stride = columns.stride;
  const char* next = reinterpret_cast<const char*>(b) + ahead.first;
  const auto between = ahead.between;
  const auto advance = ahead.next;
  auto left = columns.count;
  for (; left >= kSteps * Format::kDotStep; left -= kSteps * Format::kDotStep) {
    prefetch_lines(next, between, kIndices<kColumns * kSteps>);
    next += advance * kSteps;
    add_steps<Format, kRows, kColumns>(sum, words, b, stride, kIndices<kSteps>);
    b += kSteps * Format::kDotStep;
    words += kSteps * kRows * kStepWords<Format>;
  }
  join_steps<kCount, kSteps>(sum);
  for (; left >= Format::kDotStep; left -= Format::kDotStep) {
    add_dots<Format, kColumns, 0>(sum, words, b, stride, kIndices<kRows>);
    b += Format::kDotStep;
    words += kRows * kStepWords<Format>;
  }
  if (left > 0) {
    alignas(64) Element edge[kColumns * Format::kDotStep] = {};
    for (int column = 0; column < kColumns; ++column) {
      std::memcpy(edge + column * Format::kDotStep, b + column * stride, left * sizeof(Element));
    }
    add_dots<Format, kColumns, 0>(sum, words, edge, Format::kDotStep, kIndices<kRows>);
  }
  if (add) {
    add_stored<kColumns>(sum, sums, kIndices<kCount>);
  }
  store_dots<kColumns>(sum, sums, kIndices<kCount>);
}

// One row: the weights are read as one stream, which memory serves best, with several sums for one column.
constexpr int kStreamSums = 8;

template <int... kIndex>
[[gnu::always_inline]] inline void load_words(Words (&value)[sizeof...(kIndex)], const std::uint32_t* from,
                                              std::integer_sequence<int, kIndex...>) {
  ((value[kIndex] = load<Words>(from + kIndex * kLanes)), ...);
}

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
  ((kIndex < kLines ? __builtin_prefetch(reinterpret_cast<const char*>(b) + kStreamAhead + 64 * kIndex, 0, 2) : void()), ...);
  Words value[kStreamSums * kParts];
  load_words(value, a, kIndices<kStreamSums * kParts>);
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
    load_words(value, a, kIndices<Format::kDotParts>);
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
[[gnu::noinline]] void dot_one_row(const std::uint32_t* words, const Operand<Format>& b, std::int64_t begin, std::int64_t end,
                                   std::int64_t k, float* sums) {
  for (auto column = begin; column < end; column += kLanes) {
    alignas(64) float lanes[kLanes * kLanes];
    const auto count = std::min<std::int64_t>(kLanes, end - column);
    for (std::int64_t i = 0; i < count; ++i) {
      store(lanes + i * kLanes, dot_stream<Format>(words, b.at(column + i, 0), k));
    }
    sum_lanes(lanes, sums + column - begin);
  }
}

// Rows of A that are multiplied together: packed words, and how many.
struct DotGroup {
  const std::uint32_t* words;
  int rows;
};

// What is fetched during the tiles of a block: one stream runs on; several columns fetch those of the tile after the next, or, if there are
// more blocks, what they will read in the next one.
template <class Format, int kColumns>
DotAhead dot_ahead(std::int64_t stride, std::int64_t next_block) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename Format::Element));
  constexpr auto kStepBytes = Format::kDotStep * kSize;
  if (kColumns == 1) {
    return {kStreamAhead, kStepBytes, kStepBytes};
  }
  return {(next_block != 0 ? next_block : 2 * kColumns * stride) * kSize, stride * kSize, kStepBytes};
}

// All columns of a chunk, for one block of k. `next_block` is the distance to what the first column reads next, in elements, or 0.
template <class Format, int kRows>
void dot_block(const std::uint32_t* words, DotColumns<Format> columns, std::int64_t count, float* sums, bool add, std::int64_t next_block) {
  constexpr auto kShape = dot_shape(kRows);
  static_assert(kDotChunk % kShape.columns == 0);
  const auto ahead = dot_ahead<Format, kShape.columns>(columns.stride, next_block);
  for (; count >= kShape.columns; count -= kShape.columns) {
    dot_tile<Format, kRows, kShape.columns, kShape.steps>(words, columns, sums, add, ahead);
    columns.b += kShape.columns * columns.stride;
    sums += kShape.columns * kLanes;
  }
  for (; count > 0; --count) {
    dot_tile<Format, kRows, 1, 1>(words, columns, sums, add, ahead);
    columns.b += columns.stride;
    sums += kLanes;
  }
}

template <class Format, int... kIndex>
void dot_rows(const DotGroup& group, const DotColumns<Format>& columns, std::int64_t count, float* sums, bool add, std::int64_t next_block,
              std::integer_sequence<int, kIndex...>) {
  ((group.rows == kIndex + 1 ? dot_block<Format, kIndex + 1>(group.words, columns, count, sums, add, next_block) : void()), ...);
}

// The sums of a chunk: `out` is [row][column of the chunk]. `lanes` is room for the vectors of all rows.
template <class Format>
void dot_chunk(const std::uint32_t* words, std::int64_t rows, const Operand<Format>& b, std::int64_t column, std::int64_t count,
               std::int64_t k, float* lanes, float* out) {
  const auto steps = dot_steps<Format>(k);
  for (std::int64_t row = 0; row < rows; row += kDotRows) {
    const auto group = std::min<std::int64_t>(kDotRows, rows - row);
    const auto step_words = group * kStepWords<Format>;
    const auto blocks = std::max<std::int64_t>(1, (steps * step_words + kDotBlockWords - 1) / kDotBlockWords);
    const auto block = std::max<std::int64_t>(1, (steps + blocks - 1) / blocks);
    for (std::int64_t step = 0; step == 0 || step < steps; step += block) {
      const auto begin = step * Format::kDotStep;
      const auto to_next = step + block < steps ? block * Format::kDotStep : kDotChunk * b.row_stride - begin;
      dot_rows<Format>({words + step * step_words, static_cast<int>(group)},
                       {b.at(column, begin), b.row_stride, std::min(k - begin, block * Format::kDotStep)}, count,
                       lanes + row * kDotChunk * kLanes, step != 0, blocks > 1 ? to_next : 0, kIndices<kDotRows>);
    }
    words += steps * step_words;
  }
  for (std::int64_t i = 0; i < rows * kDotChunk; i += kLanes) {
    sum_lanes(lanes + i * kLanes, out + i);
  }
}

template <class Format>
void multiply_one_row(const Matmul& problem, const Operand<Format>& a, const Operand<Format>& b, const Operand<Format>& gate,
                      Threads& threads) {
  constexpr std::int64_t kChunk = 48;
  const auto* words = reinterpret_cast<const std::uint32_t*>(a.data);
  if (!Format::kPlain || a.k_stride != 1 || problem.k % Format::kDotStep != 0) {
    auto* converted = static_cast<std::uint32_t*>(
        scratch(Scratch::kShared, dot_steps<Format>(problem.k) * kStepWords<Format> * static_cast<std::int64_t>(sizeof(std::uint32_t))));
    convert_dot_rows<Format>(a, 0, 1, problem.k, converted);
    words = converted;
  }
  const Finisher finisher(problem);
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(problem.n, kChunk, member, count);
    alignas(64) float sums[2 * kChunk];
    auto* gates = sums + kChunk;
    for (auto column = begin; column < end; column += kChunk) {
      const auto stop = std::min(end, column + kChunk);
      dot_one_row<Format>(words, b, column, stop, problem.k, sums);
      if (gate.data != nullptr) {
        dot_one_row<Format>(words, gate, column, stop, problem.k, gates);
      }
      finisher.finish(0, 1, column, stop - column, sums, gate.data != nullptr ? gates : nullptr, kChunk);
    }
  });
}

// The whole product, B (and the gate) contiguous along k.
template <class Format>
void multiply_by_dots(const Matmul& problem, const Operand<Format>& a, const Operand<Format>& b, const Operand<Format>& gate,
                      Threads& threads) {
  if (problem.m == 1) {
    multiply_one_row(problem, a, b, gate, threads);
    return;
  }
  const auto row_words = dot_steps<Format>(problem.k) * kStepWords<Format>;
  auto* words =
      static_cast<std::uint32_t*>(scratch(Scratch::kShared, problem.m * row_words * static_cast<std::int64_t>(sizeof(std::uint32_t))));
  for (std::int64_t row = 0; row < problem.m; row += kDotRows) {
    convert_dot_rows<Format>(a, row, std::min<std::int64_t>(kDotRows, problem.m - row), problem.k, words + row * row_words);
  }
  const Finisher finisher(problem);
  threads.run([&](int member, int count) {
    const auto [begin, end] = share_of(problem.n, kDotChunk, member, count);
    const auto results = round_up(problem.m * kDotChunk, kLanes);
    auto* lanes = static_cast<float*>(scratch(Scratch::kTile, (results * kLanes + 2 * results + kLanes) * sizeof(float)));
    auto* sums = lanes + results * kLanes;
    auto* gates = sums + results;
    for (auto column = begin; column < end; column += kDotChunk) {
      const auto stop = std::min(end, column + kDotChunk);
      dot_chunk<Format>(words, problem.m, b, column, stop - column, problem.k, lanes, sums);
      if (gate.data != nullptr) {
        dot_chunk<Format>(words, problem.m, gate, column, stop - column, problem.k, lanes, gates);
      }
      finisher.finish(0, problem.m, column, stop - column, sums, gate.data != nullptr ? gates : nullptr, kDotChunk);
    }
  });
}

}  // namespace
}  // namespace neuron::kernels
