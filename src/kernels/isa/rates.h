// Loops of multiply-adds in registers: the most that a machine can compute, for the choice of bf16_products.h and for kernel_bench.
#pragma once

#include <cstdint>

#include "kernels/isa/isa.h"

namespace neuron::kernels {

struct Rate {
  void (*run)(std::int64_t rounds);
  int multiply_adds;  // in each round
};

// float32 multiply-adds with the vectors of one level that the machine runs.
Rate float_rate(Isa isa);

// Dot products of pairs of bfloat16. Needs Isa::kAvx512Bf16.
Rate bf16_dot_rate();

}  // namespace neuron::kernels
