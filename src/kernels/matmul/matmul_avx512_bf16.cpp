// Matrix products with AVX-512 with bfloat16 dot products.
#include "kernels/matmul/matmul_impl.h"
#include "kernels/matmul/matmul_tables.h"

namespace neuron::kernels {

void matmul_avx512_bf16(const Matmul& problem, Threads& threads, Bf16Products products) { multiply_any(problem, threads, products); }

}  // namespace neuron::kernels
