// See boxed_call.h.
#include "torch/ops/boxed_call.h"

#include <ATen/core/ivalue.h>

namespace neuron::ops {

void BoxedCall::run(c10::DispatchKey host_key) {
  const auto& schema = op_.schema();
  const auto first = stack_.size() - schema.arguments().size();
  arguments_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const auto* info = schema.arguments()[i].alias_info();
    stack_[first + i] = alias(arguments_[i], info != nullptr && info->isWrite());
  }
  {
    const device::DeviceAllocationScope allocations(scope_.finish_arguments());
    op_.redispatchBoxed(c10::DispatchKeySet(host_key), &stack_);
  }
  for (const auto& sparse : sparse_) {
    sparse.write_back(scope_);
  }
  for (std::size_t i = stack_.size() - schema.returns().size(); i < stack_.size(); ++i) {
    stack_[i] = adopt(std::move(stack_[i]));
  }
}

BoxedCall::~BoxedCall() {
  for (const auto& alias : differentiable_) {
    alias.unsafeGetTensorImpl()->set_autograd_meta(nullptr);  // aliases are used again
  }
}

// Some kernels ask whether an argument needs a gradient: `torch.sparse.mm(..., "amax")` notes the places of the maxima only then.
at::Tensor BoxedCall::alias_tensor(at::Tensor tensor, bool written) {
  const bool needs_gradient = tensor.defined() && tensor.device().is_privateuseone() && tensor.requires_grad();
  auto alias = find_or_make_alias(std::move(tensor), written);
  if (needs_gradient && !alias.requires_grad()) {
    alias.set_requires_grad(true);
    differentiable_.push_back(alias);
  }
  return alias;
}

at::Tensor BoxedCall::find_or_make_alias(at::Tensor tensor, bool written) {
  if (!SparseAlias::applies_to(tensor)) {
    auto& kept = keep(std::move(tensor));
    return written ? scope_.alias_written(kept) : scope_.alias(kept);
  }
  for (auto& sparse : sparse_) {
    if (sparse.source().is_same(tensor)) {
      if (written) {
        sparse.mark_written(scope_);
      }
      return sparse.alias();
    }
  }
  SparseAlias::Members members;
  for (auto& member : SparseAlias::members_of(tensor)) {
    members.push_back(&keep(std::move(member)));
  }
  auto& sparse = sparse_.emplace_back(scope_, std::move(tensor), std::move(members));
  if (written) {
    sparse.mark_written(scope_);
  }
  return sparse.alias();
}

c10::IValue BoxedCall::alias(c10::IValue& value, bool written) {
  if (value.isTensor()) {
    return alias_tensor(value.toTensor(), written);
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(alias_tensor(tensor, written));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(alias_tensor(*tensor, written)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) {
    scope_.use_device(value.toDevice());
    return c10::Device(c10::kCPU);
  }
  return value;
}

at::Tensor BoxedCall::adopt_tensor(at::Tensor&& tensor) {
  for (const auto& sparse : sparse_) {
    if (sparse.alias().is_same(tensor)) {
      return sparse.source();
    }
  }
  return scope_.adopt(std::move(tensor));
}

c10::IValue BoxedCall::adopt(c10::IValue&& value) {
  if (value.isTensor()) {
    return adopt_tensor(std::move(value).toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor& tensor : std::move(value).toTensorVector()) {
      list.push_back(adopt_tensor(std::move(tensor)));
    }
    return list;
  }
  return std::move(value);
}

}  // namespace neuron::ops
