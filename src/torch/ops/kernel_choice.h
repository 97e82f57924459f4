// Where our kernels replace PyTorch's CPU kernels in eager use: their names for dtypes, and one table of what is faster.
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

// Ours runs from an instruction set on, and for each dtype from an amount of work on: multiply-adds of one batch entry, or elements of a
// row.
struct Choice {
  kernels::Isa lowest;
  std::int64_t float32, bfloat16, float16;

  [[nodiscard]] bool wins(kernels::DataType type, std::int64_t work) const {
    const auto least = type == kernels::DataType::kFloat32 ? float32 : type == kernels::DataType::kBFloat16 ? bfloat16 : float16;
    return work >= least && kernels::current_isa() >= lowest;
  }
};

// Measured as times of the CPU's kernel (limited to the same instruction set) by ours, one thread, levels avx2, avx512 and avx512_bf16. On
// Zen 4: products of 1 x 8 x 8 to 128 x 1024 x 1024 float32 0.95 to 3.3, bfloat16 1.0 to 6, float16 1.1 to 7; attention of 1 to 512 queries
// float32 1.2 to 2.2, bfloat16 1.4 to 18, float16 3.5 to 25. On Zen 5, products up to 1024 x 512 x 1024 and any transposition: float32 1.0
// to 3.8, bfloat16 0.97 to 11, float16 1.0 to 89. Below AVX2 ours are for correctness only: PyTorch calls MKL.
inline constexpr Choice kMatmul{kernels::Isa::kAvx2, 0, 0, 0};
inline constexpr Choice kAttention{kernels::Isa::kAvx2, 0, 0, 0};
// Zen 4, calls with rows of 768 and 1024: float32 1.13 to 1.3, bfloat16 1.24 to 1.3; rows of 64 are a draw. Softmax is not here: a kernel
// of ours took 0.85 to 2 times PyTorch's time.
inline constexpr Choice kLayerNorm{kernels::Isa::kAvx2, 128, 128, 128};

}  // namespace choice
}  // namespace neuron::ops
