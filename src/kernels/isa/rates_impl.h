// The loops of rates.h for the vectors of one level.
#pragma once

#include "kernels/isa/vector_level.h"

namespace neuron::kernels {
namespace {

// Enough independent sums to hide the latency. The empty assembly makes each sum opaque, so the loop is neither folded nor hoisted.
constexpr int kRateSums = kRegisters / 2;

template <class Step>
[[gnu::always_inline]] inline void run_rounds(std::int64_t rounds, Step step) {
  Floats sums[kRateSums];
  unrolled<kRateSums>([&](auto i) __attribute__((always_inline)) { sums[i] = Floats{}; });
  for (std::int64_t round = 0; round < rounds; ++round) {
    unrolled<kRateSums>([&](auto i) __attribute__((always_inline)) {
      sums[i] = step(sums[i]);
      asm volatile("" : "+v"(sums[i]));
    });
  }
}

inline void run_multiply_adds(std::int64_t rounds) {
  Floats a = broadcast(1.0F);
  Floats b = broadcast(1e-3F);
  asm volatile("" : "+v"(a), "+v"(b));
  run_rounds(rounds, [&](Floats sum) __attribute__((always_inline)) { return multiply_add(sum, a, b); });
}

constexpr int kMultiplyAddsPerRound = kRateSums * kLanes;

}  // namespace
}  // namespace neuron::kernels
