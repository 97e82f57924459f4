// How products of bfloat16 matrices are computed: the dot-product instruction, or widening to float32 and multiply-add.
//
// The instruction has twice the rate of float32 on AMD Zen 4 and 5, and half of it on several Intel processors, which the CPU's feature
// bits do not tell. So the two rates are measured: once per kind of processor, a few milliseconds, kept in a file.
#pragma once

#include <cstdint>
#include <string>

namespace neuron::kernels {

enum class Bf16Products : std::uint8_t { kWiden, kDot };

// The choice of this process, made at the first call: TORCH_NEURONX_BF16_PRODUCTS ("dot" or "widen") if set; kWiden below
// Isa::kAvx512Bf16; else what the file bf16-products-<processor> in TORCH_NEURONX_KERNEL_CACHE_DIR says (default: softneuron in
// XDG_CACHE_HOME or ~/.cache). A missing or unreadable file is measured and written anew under a lock, so that all processes of one
// machine choose the same. Without a folder that can be written, each process measures for itself.
// Throws std::invalid_argument if the variable has another value, or asks for "dot" where the level has none.
Bf16Products bf16_products();

// The same for one folder, without looking at variables.
Bf16Products recorded_bf16_products(const std::string& folder);

// Which of the two is faster now: register-only loops of both, the better of several short runs. Needs Isa::kAvx512Bf16.
Bf16Products measure_bf16_products();

}  // namespace neuron::kernels
