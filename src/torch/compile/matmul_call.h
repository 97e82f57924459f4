// A matrix product ready to run on tensors: the kernels' problem, which lacks only pointers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "compiler/program.h"
#include "kernels/matmul/matmul.h"
#include "torch/compile/tensor_layout.h"

namespace neuron::compile {

class MatmulCall {
 public:
  // The instruction is a product and has been verified.
  MatmulCall(const compiler::Program& program, const compiler::Instruction& instruction);

  const std::vector<compiler::ValueId>& operands() const { return operands_; }

  // One tensor per operand, of any strides: one that lies in memory as the program says is read where it is, others are copied first.
  // Throws what the device's allocator throws, and c10::IndexError for a choice of matrices that are not there.
  at::Tensor run(c10::ArrayRef<const at::Tensor*> inputs) const;

 private:
  static constexpr int kAbsent = -1;

  int add_operand(const compiler::Program& program, compiler::ValueId id);
  void multiply_chosen(const kernels::Matmul& problem, const std::int64_t* a_picks, const std::int64_t* b_picks) const;

  std::vector<compiler::ValueId> operands_;
  std::vector<TensorLayout> inputs_;
  TensorLayout result_;
  c10::DeviceIndex core_;
  kernels::Matmul problem_;
  // Where pointers come from, by position among the operands.
  int gate_ = kAbsent;
  int addend_ = kAbsent;
  int residual_ = kAbsent;
  int a_picks_ = kAbsent;
  int b_picks_ = kAbsent;
};

}  // namespace neuron::compile
