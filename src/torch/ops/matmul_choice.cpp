// See matmul_choice.h.
#include "torch/ops/matmul_choice.h"

#include <limits>

#include "kernels/isa/isa.h"

namespace neuron::ops {
namespace {

using kernels::DataType;

// At a level and type, from so many multiply-adds per batch entry on. Measured on an AMD EPYC (Zen 5), one thread, times of the CPU's
// kernel by ours, from 1 x 8 x 8 to 1024 x 512 x 1024 and any transposition: float32 1.0 to 3.8, bfloat16 0.97 to 11, float16 1.0 to 89.
// Below AVX2 our kernels are for correctness only.
struct Threshold {
  kernels::Isa isa;
  DataType type;
  std::int64_t least;
};
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr Threshold kThresholds[] = {
    {kernels::Isa::kGeneric, DataType::kFloat32, kNever}, {kernels::Isa::kGeneric, DataType::kBFloat16, kNever},
    {kernels::Isa::kGeneric, DataType::kFloat16, kNever}, {kernels::Isa::kAvx2, DataType::kFloat32, 0},
    {kernels::Isa::kAvx2, DataType::kBFloat16, 0},        {kernels::Isa::kAvx2, DataType::kFloat16, 0},
    {kernels::Isa::kAvx512, DataType::kFloat32, 0},       {kernels::Isa::kAvx512, DataType::kBFloat16, 0},
    {kernels::Isa::kAvx512, DataType::kFloat16, 0},       {kernels::Isa::kAvx512Bf16, DataType::kFloat32, 0},
    {kernels::Isa::kAvx512Bf16, DataType::kBFloat16, 0},  {kernels::Isa::kAvx512Bf16, DataType::kFloat16, 0},
};

}  // namespace

bool kernels_win(const kernels::Matmul& problem) {
  const auto isa = kernels::current_isa();
  for (const auto& threshold : kThresholds) {
    if (threshold.isa == isa && threshold.type == problem.type) {
      return problem.m * problem.n * problem.k >= threshold.least;
    }
  }
  return false;
}

}  // namespace neuron::ops
