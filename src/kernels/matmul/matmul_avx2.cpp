// Matrix products with AVX2, FMA and F16C.
#include "kernels/matmul/matmul_impl.h"
#include "kernels/matmul/matmul_tables.h"

namespace neuron::kernels {

void matmul_avx2(const Matmul& problem, Threads& threads, Bf16Products products) { multiply_any(problem, threads, products); }

}  // namespace neuron::kernels
