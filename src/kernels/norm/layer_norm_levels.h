// Layer norm as each instruction set computes it. Only layer_norm.cpp may use these, after asking the CPU.
#pragma once

#include "kernels/norm/layer_norm.h"

namespace neuron::kernels {

// Computes rows [begin, end) of a call.
using LayerNormRows = void (*)(const LayerNorm& call, std::int64_t begin, std::int64_t end);

LayerNormRows layer_norm_generic();
LayerNormRows layer_norm_avx2();
LayerNormRows layer_norm_avx512();

}  // namespace neuron::kernels
