// A fused region ready to run on tensors: the interpreter's plan, what it expects of its operands, and how to make its results.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "compiler/program.h"
#include "kernels/vector/plan.h"
#include "torch/compile/tensor_layout.h"

namespace neuron::compile {

class FusedCall {
 public:
  // The instruction has a body and has been verified.
  FusedCall(const compiler::Program& program, const compiler::Instruction& instruction);

  const std::vector<compiler::ValueId>& operands() const { return operands_; }

  // One tensor per operand, of any strides: one that lies in memory as the program says is read where it is, others are copied first.
  // Uses PyTorch's threads if there is enough to do. Throws what the device's allocator throws.
  c10::SmallVector<at::Tensor, 4> run(c10::ArrayRef<const at::Tensor*> inputs) const;

 private:
  void compute(void* const* tensors) const;

  std::vector<compiler::ValueId> operands_;
  std::vector<TensorLayout> inputs_;
  std::vector<TensorLayout> results_;
  c10::DeviceIndex core_;
  kernels::vector::Plan plan_;
};

}  // namespace neuron::compile
