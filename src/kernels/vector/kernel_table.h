// What an instruction set offers to the interpreter: one function per operation, lane and kind of operands. The tables are filled by
// kernel_table_impl.h, once per translation unit; only the dispatcher may touch those of instruction sets that the CPU may lack.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/vector/region.h"

namespace neuron::kernels::vector {

// out[i] = op(a[i], b[i], c[i]) for i < n. An operand whose bit is set in the kernel's mask is one number for all i. Pointers are to the
// operation's lanes; `out` may be an operand itself.
using ElementKernel = void (*)(void* out, const void* a, const void* b, const void* c, std::int64_t n);
// registers[i] = memory[i * stride], converted; or the reverse.
using LoadKernel = void (*)(void* registers, const void* memory, std::int64_t stride, std::int64_t n);
using StoreKernel = void (*)(void* memory, const void* registers, std::int64_t stride, std::int64_t n);
// Combines *result, of the same lane, with the reduction of n registers.
using ReduceKernel = void (*)(void* result, const void* registers, std::int64_t n);
// registers[i] = first + i * step.
using IotaKernel = void (*)(void* registers, std::int64_t first, std::int64_t step, std::int64_t n);

enum class Rounding : std::uint8_t { kNone, kBF16 };
inline constexpr int kMaskCount = 7;  // at least one of three operands is a vector

struct KernelTable {
  const char* name = "";
  // By operation, lane of the operands, rounding of the result, mask of the operands that are numbers. Null: not offered.
  ElementKernel elements[kOpCount][kLaneCount][2][kMaskCount] = {};
  // From a lane to an element type: casts, and the rounding or wrapping of results. The result is in the lane of the element type.
  ElementKernel convert[kLaneCount][kElementCount] = {};
  ElementKernel fill[kLaneCount] = {};  // out[i] = a[0]
  LoadKernel load[kElementCount] = {};
  StoreKernel store[kElementCount] = {};
  ReduceKernel sum[kLaneCount] = {};
  ReduceKernel amax[kLaneCount] = {};
  ReduceKernel amin[kLaneCount] = {};
  IotaKernel iota = nullptr;
  ElementKernel rotate_half = nullptr;  // a whole row
  ElementKernel rotate_half_back = nullptr;
};

const KernelTable& kernel_table_generic() noexcept;
const KernelTable& kernel_table_avx2() noexcept;
const KernelTable& kernel_table_avx512() noexcept;

// Those that this CPU can run, the best last.
std::vector<const KernelTable*> kernel_tables();
const KernelTable& best_kernel_table() noexcept;

// Whether an operation runs on operands of a lane. True for operations that are no element kernels (casts, reductions, counting).
bool offers(Op op, Lane lane) noexcept;

}  // namespace neuron::kernels::vector
