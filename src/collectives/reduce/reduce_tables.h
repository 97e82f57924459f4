// The instruction sets for which reductions are compiled, each in a file of its own.
#pragma once

#include "collectives/reduce/reduce.h"

namespace neuron::collectives {

ReduceKernel reduce_generic(DataType type, ReduceOp op) noexcept;
ReduceKernel reduce_avx2(DataType type, ReduceOp op) noexcept;
ReduceKernel reduce_avx512(DataType type, ReduceOp op) noexcept;

}  // namespace neuron::collectives
