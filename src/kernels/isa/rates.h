// Loops of multiply-adds in registers: the most that a machine can compute, for the choice of bf16_products.h and for kernel_bench.
#pragma once

#include <cstdint>

#include "kernels/isa/bf16_products.h"
#include "kernels/isa/isa.h"

namespace neuron::kernels {

struct Rate {
  void (*run)(std::int64_t rounds);
  int multiply_adds;  // in each round
};

// float32 multiply-adds with the vectors of one level that the machine runs.
Rate float_rate(Isa isa);

// Products of bfloat16 in one way. Needs a level that has it (bf16_products.h).
Rate products_rate(Bf16Products products);

}  // namespace neuron::kernels
