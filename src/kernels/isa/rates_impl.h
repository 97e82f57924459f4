// The loops of rates.h for the vectors of one level.
#pragma once

#include "kernels/isa/vector_level.h"

namespace neuron::kernels {
namespace {

// Enough independent sums to hide the latency. The empty assembly makes each sum opaque, so the loop is neither folded nor hoisted.
constexpr int kRateSums = kRegisters / 2;

struct MultiplyAdd {
  [[gnu::always_inline]] static Floats step(Floats sum, Words a, Words b) { return multiply_add(sum, (Floats)a, (Floats)b); }
};
struct DotPairs {
  [[gnu::always_inline]] static Floats step(Floats sum, Words a, Words b) { return dot_pairs(sum, a, b); }
};

template <class Operation, int... kIndex>
[[gnu::always_inline]] inline void run_round(Floats (&sums)[kRateSums], Words a, Words b, std::integer_sequence<int, kIndex...>) {
  ((sums[kIndex] = Operation::step(sums[kIndex], a, b)), ...);
#if defined(__x86_64__)
  (([](Floats& sum) __attribute__((always_inline)) { asm volatile("" : "+v"(sum)); })(sums[kIndex]), ...);
#else
  (([](Floats& sum) __attribute__((always_inline)) { asm volatile("" : "+w"(sum)); })(sums[kIndex]), ...);
#endif
}

// Both words are numbers in each of the formats.
template <class Operation>
void run_rounds(std::int64_t rounds) {
  Floats sums[kRateSums] = {};
  const Words a = Words{} + 0x3f803f80U;
  const Words b = Words{} + 0x3c003c00U;
  for (std::int64_t round = 0; round < rounds; ++round) {
    run_round<Operation>(sums, a, b, kIndices<kRateSums>);
  }
}

constexpr int kMultiplyAddsPerRound = kRateSums * kLanes;

}  // namespace
}  // namespace neuron::kernels
