// See matmul_choice.h.
#include "torch/ops/matmul_choice.h"

#include <limits>

#include "kernels/isa/isa.h"

namespace neuron::ops {
namespace {

using kernels::DataType;

// At a level and type, from so many multiply-adds per batch entry on. Below AVX2 our kernels are for correctness only.
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
