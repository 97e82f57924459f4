// What a program needs of its core's memory at once, and the refusal to begin a run that cannot get it.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "compiler/memory_estimate.h"
#include "compiler/program.h"

namespace neuron::compile {

class MemoryDemand {
 public:
  explicit MemoryDemand(const compiler::Program& program) : estimate_(compiler::estimate_memory(program)) {}

  // Throws c10::OutOfMemoryError, which names the instruction that needs the most, if that is more than the core of the inputs has beside
  // what is in use. An input that nobody else holds counts as free: it may die on the way. What kernels and rounding take is not counted,
  // so a run that begins may still run out.
  void check(const compiler::Program& program, const std::vector<c10::IValue>& inputs) const;

 private:
  compiler::MemoryEstimate estimate_;
};

}  // namespace neuron::compile
