// The operators of rows.h on some rows, as each instruction set computes them. Only rows.cpp may use them, after asking the CPU.
#pragma once

#include "kernels/rows/rows.h"

namespace neuron::kernels {

// Each computes rows [begin, end) of a call.
struct RowKernels {
  void (*normalize)(const Norm& call, std::int64_t begin, std::int64_t end);
  void (*softmax)(const Softmax& call, std::int64_t begin, std::int64_t end);
  void (*rope)(const Rope& call, std::int64_t begin, std::int64_t end);  // rows of [batches, heads, length] one after the other
  void (*gated)(const Gated& call, std::int64_t begin, std::int64_t end);
  void (*cross_entropy)(const CrossEntropy& call, std::int64_t begin, std::int64_t end);
};

RowKernels row_kernels_generic();
RowKernels row_kernels_avx2();
RowKernels row_kernels_avx512();

}  // namespace neuron::kernels
