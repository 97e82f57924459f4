// Matrix products with AVX-512 with AMX tiles of bfloat16.
#include "kernels/matmul/matmul_tables.h"
#include "kernels/matmul/tiled.h"

namespace neuron::kernels {
namespace {

// With fewer rows vectors keep up with the memory that the weight comes from.
constexpr std::int64_t kFewestRows = 5;

}  // namespace

void matmul_amx(const Matmul& problem, Threads& threads, Bf16Products products) {
  if (problem.type == DataType::kBFloat16 && products == Bf16Products::kTiles && problem.m >= kFewestRows) {
    Tiled(problem).multiply(threads);
  } else {
    matmul_avx512_bf16(problem, threads, products);
  }
}

}  // namespace neuron::kernels
