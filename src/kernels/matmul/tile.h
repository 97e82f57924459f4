// The inner loop of large products: a tile of sums in registers, rows of one operand times a packed panel of the other.
#pragma once

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

// sums[row * kPanelWidth + lane] (+)= products over `words` words of rows[row * stride + word] and panel[word * kPanelWidth + lane].
// kPrefetches lines are fetched for every four words.
template <class Format, int kRows, int kVectors, int kPrefetches>
[[gnu::noinline]] void multiply_tile(const std::uint32_t* rows, std::int64_t stride, const std::uint32_t* panel, std::int64_t words,
                                     float* sums, bool add, Prefetch& prefetch) {
  Floats sum[kRows * kVectors];
  if (add) {
    unrolled<kRows * kVectors>([&](auto i) __attribute__((always_inline)) {
      sum[i] = load<Floats>(sums + i / kVectors * kPanelWidth + i % kVectors * kLanes);
    });
  } else {
    unrolled<kRows * kVectors>([&](auto i) __attribute__((always_inline)) { sum[i] = Floats{}; });
  }
  // One pointer for three rows: the other two are reached by scaled addressing. The assembly keeps them in registers.
  constexpr int kGroups = (kRows + 2) / 3;
  const std::uint32_t* group[kGroups];
  unrolled<kGroups>([&](auto i) __attribute__((always_inline)) {
    group[i] = rows + 3 * i * stride;
    asm("" : "+r"(group[i]));
  });
  const auto step = [&](std::int64_t offset) __attribute__((always_inline)) {
    Words lane[kVectors];
    unrolled<kVectors>([&](auto v) __attribute__((always_inline)) { lane[v] = load<Words>(panel + offset * kPanelWidth + v * kLanes); });
    unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
      const Words value = Words{} + (group[row / 3] + row % 3 * stride)[offset];
      unrolled<kVectors>([&](auto v) __attribute__((always_inline)) {
        sum[row * kVectors + v] = multiply_words<Format>(sum[row * kVectors + v], value, lane[v]);
      });
    });
  };
  const auto advance = [&](std::int64_t count) __attribute__((always_inline)) {
    panel += count * kPanelWidth;
    unrolled<kGroups>([&](auto i) __attribute__((always_inline)) {
      group[i] += count;
      asm("" : "+r"(group[i]));
    });
  };
  auto left = words;
  const char* next = prefetch.next;
  for (; left >= 4; left -= 4) {
    unrolled<4>([&](auto i) __attribute__((always_inline)) {
      step(i);
      if constexpr (i < kPrefetches) {
        __builtin_prefetch(next, 0, 2);
        next += prefetch.step;
      }
    });
    advance(4);
  }
  prefetch.next = next;
  if (next >= prefetch.end) {
    prefetch.step = 0;
  }
  for (; left > 0; --left) {
    step(0);
    advance(1);
  }
  unrolled<kRows * kVectors>([&](auto i) __attribute__((always_inline)) {
    store(sums + i / kVectors * kPanelWidth + i % kVectors * kLanes, sum[i]);
  });
}

// A tile of any height up to kTileRows: whole tiles, then a few smaller ones.
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
