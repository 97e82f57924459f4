// Operators of other libraries (custom ops, torchvision) that have a CPU kernel but none for `neuron`: the alias call in boxed form.
// ATen's own operators are registered one by one (tools/opgen); one that arrives here has no kernel, and says so.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "torch/ops/alias_scope.h"

namespace neuron::ops {
namespace {

class BoxedCall {
 public:
  BoxedCall(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {}

  void run() {
    const auto& schema = op_.schema();
    const auto first = stack_.size() - schema.arguments().size();
    arguments_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const auto* info = schema.arguments()[i].alias_info();
      stack_[first + i] = alias(arguments_[i], info != nullptr && info->isWrite());
    }
    {
      const device::DeviceAllocationScope allocations(scope_.finish_arguments());
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    }
    for (std::size_t i = stack_.size() - schema.returns().size(); i < stack_.size(); ++i) {
      stack_[i] = adopt(std::move(stack_[i]));
    }
  }

 private:
  at::Tensor alias_tensor(at::Tensor& tensor, bool written) { return written ? scope_.alias_written(tensor) : scope_.alias(tensor); }

  c10::IValue alias(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      return alias_tensor(keep(value.toTensor()), written);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(alias_tensor(keep(tensor), written));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor.has_value() ? std::optional<at::Tensor>(alias_tensor(keep(*tensor), written)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice()) {
      scope_.use_device(value.toDevice());
      return c10::Device(c10::kCPU);
    }
    return value;
  }

  c10::IValue adopt(c10::IValue&& value) {
    if (value.isTensor()) {
      return scope_.adopt(std::move(value).toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (at::Tensor& tensor : std::move(value).toTensorVector()) {
        list.push_back(scope_.adopt(std::move(tensor)));
      }
      return list;
    }
    return std::move(value);
  }

  // Slots refer to the tensor object that they stand for, so it needs a fixed place.
  at::Tensor& keep(at::Tensor tensor) { return *kept_.emplace_back(std::make_unique<at::Tensor>(std::move(tensor))); }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::vector<c10::IValue> arguments_;
  std::vector<std::unique_ptr<at::Tensor>> kept_;
  AliasScope scope_;
};

void run_on_host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const bool foreign = op.operator_name().getNamespace() != std::optional<std::string_view>("aten");
  TORCH_CHECK_NOT_IMPLEMENTED(foreign && op.hasKernelForDispatchKey(c10::DispatchKey::CPU), "The operator '", op.operator_name(),
                              "' is not implemented for the neuron device. docs/operators.md lists what is; run it on CPU tensors, or give "
                              "it a kernel for dispatch key PrivateUse1.");
  BoxedCall(op, *stack).run();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host_kernel>()); }

}  // namespace
}  // namespace neuron::ops
