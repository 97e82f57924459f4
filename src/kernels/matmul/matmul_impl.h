// The choice between the ways to multiply, for one format and one instruction set.
#pragma once

#include "kernels/matmul/blocked.h"
#include "kernels/matmul/dot.h"
#include "kernels/matmul/streamed.h"
#include "kernels/matmul/sweep.h"

namespace neuron::kernels {
namespace {

// The choice between the ways, as kernel_bench measured them: dot products for few rows of A; the weight streamed while its packing would
// cost more than A's repeated reading.
constexpr std::int64_t kMostDotRows = 8;
template <class Format>
constexpr std::int64_t kMostSweptRows = Format::kPairs ? 3 : 8;
constexpr std::int64_t kMostStreamedRows = kRegisters == 32 ? 128 : 32;

template <class Format>
void multiply_one(const Matmul& problem, Threads& threads) {
  using Element = typename Format::Element;
  const Operand<Format> a{static_cast<const Element*>(problem.a.data), problem.a.row_stride, problem.a.column_stride};
  const Operand<Format> b{static_cast<const Element*>(problem.b.data), problem.b.column_stride, problem.b.row_stride};
  const Operand<Format> gate{static_cast<const Element*>(problem.gate.data), problem.gate.column_stride, problem.gate.row_stride};
  const bool along_k = b.k_stride == 1 && (gate.data == nullptr || gate.k_stride == 1);
  const bool along_n = b.row_stride == 1 && (gate.data == nullptr || gate.row_stride == 1);
  if (along_k && problem.m <= kMostDotRows) {
    multiply_by_dots<Format>(problem, a, b, gate, threads);
  } else if (along_n && problem.m <= kMostSweptRows<Format>) {
    multiply_by_sweeps<Format>(problem, a, b, gate, threads);
  } else if (along_k && problem.m <= kMostStreamedRows && problem.n >= problem.m) {
    multiply_streamed<Format>(problem, a, b, gate, threads);
  } else {
    Blocked<Format>(problem, a, b, gate, threads).multiply();
  }
}

inline void multiply_any(const Matmul& problem, Threads& threads, Bf16Products products) {
  switch (problem.type) {
    case DataType::kFloat32:
      return multiply_one<FloatFormat>(problem, threads);
    case DataType::kBFloat16:
      if constexpr (kHasBf16Dot) {
        if (products != Bf16Products::kWiden) {
          return multiply_one<PairFormat>(problem, threads);
        }
      }
      return multiply_one<WidenedBf16Format>(problem, threads);
    case DataType::kFloat16:
      return multiply_one<WidenedF16Format>(problem, threads);
  }
}

}  // namespace
}  // namespace neuron::kernels
