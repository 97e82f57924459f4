// The instruction sets that kernels are compiled for, and the one that this process uses.
//
// Each kernel is one set of templates and one translation unit per level, named <kernel>_<level>.cpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace neuron::kernels {

// In ascending order: a machine that runs one level runs those below it.
enum class Isa : std::uint8_t {
  kGeneric,     // the compiler's baseline
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // the same and AVX-512-BF16
  kAmx,         // the same and AMX tiles of bfloat16, which the system must allow a process
};

// "generic", "avx2", "avx512", "avx512_bf16", "amx".
std::string_view isa_name(Isa isa) noexcept;

// What this machine runs, in ascending order; never empty.
std::vector<Isa> available_isas();

// The level of this process: the machine's highest, or the one that TORCH_NEURONX_ISA names. Read once. Throws std::invalid_argument
// if the variable names no level that this machine runs.
Isa current_isa();

}  // namespace neuron::kernels
