// What memory a program needs, from its static shapes, without running it.
#pragma once

#include <cstdint>

#include "compiler/program.h"

namespace neuron::compiler {

struct MemoryEstimate {
  std::uint64_t input_bytes = 0;     // tensors that the caller passes
  std::uint64_t constant_bytes = 0;  // tensors that the program brings along
  std::uint64_t peak_bytes =
      0;  // the most device memory that instructions hold at once besides these; scratch memory of kernels is not counted
  int peak_instruction = -1;  // index of the instruction at which that happens
};

// Bytes that a tensor of this type spans; 0 for what is not a tensor or has elements of unknown size.
std::uint64_t bytes_of(const Type& type);

// Views cost nothing; values that may share memory live as long as the last of them.
MemoryEstimate estimate_memory(const Program& program);

}  // namespace neuron::compiler
