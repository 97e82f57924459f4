// How products of bfloat16 matrices are computed: tile registers, the dot-product instruction, or widening to float32 and multiply-add.
//
// The dot product has twice the rate of float32 on AMD Zen 4 and 5, and half of it on several Intel processors, which the CPU's feature
// bits do not tell. So the rates are measured: once per kind of processor and level, a few milliseconds, kept in a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/isa/isa.h"

namespace neuron::kernels {

// kTiles: by tiles where an operand has many rows, else as with kDot.
enum class Bf16Products : std::uint8_t { kWiden, kDot, kTiles };

// "widen", "dot", "tiles".
std::string_view products_name(Bf16Products products) noexcept;

// What a level has, in ascending order.
std::vector<Bf16Products> products_of(Isa isa);

// The choice of this process, made at the first call: TORCH_NEURONX_BF16_PRODUCTS (a name) if set; kWiden below
// Isa::kAvx512Bf16; else what the file bf16-products-<processor>-<level> in TORCH_NEURONX_KERNEL_CACHE_DIR says (default: softneuron in
// XDG_CACHE_HOME or ~/.cache). A missing or unreadable file is measured and written anew under a lock, so that all processes of one
// machine choose the same. Without a folder that can be written, each process measures for itself.
// Throws std::invalid_argument if the variable has another value, or asks for what the level does not have.
Bf16Products bf16_products();

// The same for one folder, without looking at variables.
Bf16Products recorded_bf16_products(const std::string& folder);

// Which of those that current_isa() has is the fastest now: register-only loops, the better of several short runs. Needs Isa::kAvx512Bf16.
Bf16Products measure_bf16_products();

}  // namespace neuron::kernels
