// The rates of each level, one translation unit each. Only the dispatcher may call them, after asking the CPU.
#pragma once

#include "kernels/isa/rates.h"

namespace neuron::kernels {

Rate float_rate_generic();
Rate float_rate_avx2();
Rate float_rate_avx512();
Rate bf16_dot_rate_avx512_bf16();
Rate bf16_tile_rate_amx();

}  // namespace neuron::kernels
