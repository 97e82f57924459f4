// One operator call on aliases, for any operator: arguments and results are read from the dispatcher's stack by their types. The typed form
// is AliasCall (alias_kernel.h).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <vector>

#include "torch/ops/alias_scope.h"
#include "torch/ops/sparse_alias.h"

namespace neuron::ops {

class BoxedCall {
 public:
  BoxedCall(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {}
  ~BoxedCall();
  BoxedCall(const BoxedCall&) = delete;
  BoxedCall& operator=(const BoxedCall&) = delete;

  // Replaces the arguments on the stack by the results of the operator's kernel for `host_key` (CPU, SparseCPU, SparseCsrCPU).
  void run(c10::DispatchKey host_key);

 private:
  c10::IValue alias(c10::IValue& value, bool written);
  at::Tensor alias_tensor(at::Tensor tensor, bool written);
  at::Tensor find_or_make_alias(at::Tensor tensor, bool written);
  c10::IValue adopt(c10::IValue&& value);
  at::Tensor adopt_tensor(at::Tensor&& tensor);

  // Slots refer to the tensor object that they stand for, so it needs a fixed place.
  at::Tensor& keep(at::Tensor tensor) { return *kept_.emplace_back(std::make_unique<at::Tensor>(std::move(tensor))); }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::vector<c10::IValue> arguments_;
  std::vector<std::unique_ptr<at::Tensor>> kept_;
  AliasScope scope_;
  // These hold aliases of the scope, so they go first.
  std::vector<SparseAlias> sparse_;
  std::vector<at::Tensor> differentiable_;
};

}  // namespace neuron::ops
