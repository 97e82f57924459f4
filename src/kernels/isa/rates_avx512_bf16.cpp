// The rate of dot products of bfloat16.
#include "kernels/isa/rates_impl.h"
#include "kernels/isa/rates_tables.h"

namespace neuron::kernels {
Rate bf16_dot_rate_avx512_bf16() { return {&run_rounds<DotPairs>, 2 * kMultiplyAddsPerRound}; }

}  // namespace neuron::kernels
