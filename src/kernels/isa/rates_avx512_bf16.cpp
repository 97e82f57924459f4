// The rate of dot products of bfloat16.
#include "kernels/isa/rates_impl.h"
#include "kernels/isa/rates_tables.h"

namespace neuron::kernels {
namespace {

void run_dots(std::int64_t rounds) {
  Words a = Words{} + 0x3f803f80U;
  Words b = Words{} + 0x3c003c00U;
  asm volatile("" : "+v"(a), "+v"(b));
  run_rounds(rounds, [&](Floats sum) __attribute__((always_inline)) { return dot_pairs(sum, a, b); });
}

}  // namespace

Rate bf16_dot_rate_avx512_bf16() { return {&run_dots, 2 * kMultiplyAddsPerRound}; }

}  // namespace neuron::kernels
