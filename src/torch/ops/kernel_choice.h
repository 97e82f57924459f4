// Where our kernels replace PyTorch's CPU kernels in eager use: their names for dtypes, and the choice for attention. That of matrix
// products depends on their sizes and has a table of its own (matmul_choice.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/data_type.h"
#include "kernels/isa/isa.h"

namespace neuron::ops {

// A float dtype as kernels name it; nothing for any other.
inline std::optional<kernels::DataType> kernel_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::DataType::kFloat32;
    case at::kBFloat16:
      return kernels::DataType::kBFloat16;
    case at::kHalf:
      return kernels::DataType::kFloat16;
    default:
      return std::nullopt;
  }
}

namespace choice {

// Ours runs from this instruction set on, for these dtypes.
struct Choice {
  kernels::Isa lowest;
  bool float32, bfloat16, float16;

  [[nodiscard]] bool wins(kernels::DataType type) const {
    const bool typed = type == kernels::DataType::kFloat32 ? float32 : type == kernels::DataType::kBFloat16 ? bfloat16 : float16;
    return typed && kernels::current_isa() >= lowest;
  }
};

// Below AVX2 ours has no wider vectors than PyTorch's baseline, which calls MKL.
inline constexpr Choice kAttention{kernels::Isa::kAvx2, true, true, true};

}  // namespace choice
}  // namespace neuron::ops
