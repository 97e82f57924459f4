// See sparse_alias.h.
#include "torch/ops/sparse_alias.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>

namespace neuron::ops {
namespace {

using MemberTensors = c10::SmallVector<at::Tensor, 3>;

bool is_coo(const at::Tensor& sparse) { return sparse.layout() == at::kSparse; }
at::SparseTensorImpl& coo(const at::Tensor& sparse) { return *static_cast<at::SparseTensorImpl*>(sparse.unsafeGetTensorImpl()); }
at::SparseCsrTensorImpl& compressed(const at::Tensor& sparse) {
  return *static_cast<at::SparseCsrTensorImpl*>(sparse.unsafeGetTensorImpl());
}

// Makes `to` what `from` is, but for the members, which are given. Both are COO, or both compressed.
void assume(const at::Tensor& to, const at::Tensor& from, const MemberTensors& members) {
  if (is_coo(from)) {
    auto& impl = coo(to);
    const auto& model = coo(from);
    if (to.sizes() != from.sizes() || impl.sparse_dim() != model.sparse_dim() || impl.dense_dim() != model.dense_dim()) {
      impl.raw_resize_(model.sparse_dim(), model.dense_dim(), from.sizes());
    }
    if (!impl.indices_.is_same(members[0]) || !impl.values_.is_same(members[1])) {
      impl.set_indices_and_values_unsafe(members[0], members[1]);
    }
    if (impl.coalesced() != model.coalesced()) {
      impl.set_coalesced(model.coalesced());
    }
    return;
  }
  auto& impl = compressed(to);
  if (to.sizes() != from.sizes() || !impl.compressed_indices().is_same(members[0]) || !impl.plain_indices().is_same(members[1]) ||
      !impl.values().is_same(members[2])) {
    impl.set_member_tensors(members[0], members[1], members[2], from.sizes());
  }
}

// A sparse tensor on `device` that is what `model` is, with the given members.
at::Tensor make_like(const at::Tensor& model, const MemberTensors& members, c10::Device device) {
  const bool host = device.is_cpu();
  at::Tensor made;
  if (is_coo(model)) {
    // The constructor makes empty members on the current device.
    const c10::DeviceGuard guard(device);
    made = at::detail::make_tensor<at::SparseTensorImpl>(
        c10::DispatchKeySet(host ? c10::DispatchKey::SparseCPU : c10::DispatchKey::SparsePrivateUse1), model.dtype());
  } else {
    made = at::detail::make_tensor<at::SparseCsrTensorImpl>(
        c10::DispatchKeySet(host ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::SparseCsrPrivateUse1), device, model.layout(),
        model.dtype());
  }
  assume(made, model, members);
  return made;
}

}  // namespace

bool SparseAlias::applies_to(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_privateuseone() && is_sparse_layout(tensor.layout());
}

MemberTensors SparseAlias::members_of(const at::Tensor& sparse) {
  if (is_coo(sparse)) {
    return {coo(sparse).indices(), coo(sparse).values()};
  }
  return {compressed(sparse).compressed_indices(), compressed(sparse).plain_indices(), compressed(sparse).values()};
}

SparseAlias::SparseAlias(AliasScope& scope, at::Tensor source, Members members) : source_(std::move(source)), members_(std::move(members)) {
  MemberTensors aliases;
  for (const auto* member : members_) {
    aliases.push_back(scope.alias(*member));
  }
  alias_ = make_like(source_, aliases, c10::Device(c10::kCPU));
  // What may not change its sizes (the result of detach()) may not on the alias either, and the kernel says so.
  alias_.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(source_.unsafeGetTensorImpl()->allow_tensor_metadata_change());
}

void SparseAlias::mark_written(AliasScope& scope) {
  written_ = true;
  for (auto* member : members_) {
    scope.alias_written(*member);
  }
}

void SparseAlias::write_back(AliasScope& scope) const {
  if (!written_) {
    return;
  }
  auto members = members_of(alias_);
  for (auto& member : members) {
    member = scope.adopt(std::move(member));
  }
  assume(source_, alias_, members);
}

at::Tensor adopt_sparse(AliasScope& scope, const at::Tensor& result, c10::DeviceIndex device) {
  auto members = SparseAlias::members_of(result);
  for (auto& member : members) {
    member = scope.adopt(std::move(member));
  }
  return make_like(result, members, c10::Device(c10::kPrivateUse1, device));
}

}  // namespace neuron::ops
