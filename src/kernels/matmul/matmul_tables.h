// The levels of matmul, one translation unit each. Only the dispatcher may call them, after asking the CPU. One batch entry per call.
#pragma once

#include "kernels/matmul/matmul.h"

namespace neuron::kernels {

void matmul_generic(const Matmul& problem, Threads& threads, Bf16Products products);
void matmul_avx2(const Matmul& problem, Threads& threads, Bf16Products products);
void matmul_avx512(const Matmul& problem, Threads& threads, Bf16Products products);
void matmul_avx512_bf16(const Matmul& problem, Threads& threads, Bf16Products products);
void matmul_amx(const Matmul& problem, Threads& threads, Bf16Products products);

}  // namespace neuron::kernels
