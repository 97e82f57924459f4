// A view whose sizes, strides and offset are known before the program runs: made without the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "compiler/program.h"

namespace neuron::compile {

class ViewCall {
 public:
  // Nothing if the instruction is no such view.
  static std::optional<ViewCall> make(const compiler::Program& program, const compiler::Instruction& instruction);

  compiler::ValueId operand() const { return operand_; }
  // Nothing if the tensor does not lie in memory as the program says, so that strides must be computed from what it is. The view has a
  // version counter of its own, as views made below autograd's view tracking have.
  std::optional<at::Tensor> run(const at::Tensor& base) const;
  // The view of a copy that lies as the program says; for memory that nobody writes.
  at::Tensor run_on_copy(const at::Tensor& base) const;

 private:
  ViewCall() = default;

  compiler::ValueId operand_ = compiler::kNoValue;
  std::vector<std::int64_t> base_sizes_;
  std::vector<std::int64_t> base_strides_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  std::int64_t offset_ = 0;  // from the base's first element
};

}  // namespace neuron::compile
