// Matrix products with the compiler's baseline.
#include "kernels/matmul/matmul_impl.h"
#include "kernels/matmul/matmul_tables.h"

namespace neuron::kernels {

void matmul_generic(const Matmul& problem, Threads& threads, Bf16Products products) { multiply_any(problem, threads, products); }

}  // namespace neuron::kernels
