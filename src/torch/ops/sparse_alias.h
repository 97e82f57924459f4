// Sparse tensors of the device in a call on aliases.
//
// A sparse tensor has no storage of its own but members, which are dense tensors: indices and values (COO), or compressed indices, plain
// indices and values (CSR, CSC, BSR, BSC). Its alias is a sparse CPU tensor whose members are the aliases of the members.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "torch/ops/alias_scope.h"

namespace neuron::ops {

constexpr bool is_sparse_layout(c10::Layout layout) {
  using enum c10::Layout;
  return layout == Sparse || layout == SparseCsr || layout == SparseCsc || layout == SparseBsr || layout == SparseBsc;
}

class SparseAlias {
 public:
  using Members = c10::SmallVector<at::Tensor*, 3>;

  // Whether `tensor` is a sparse tensor of the device.
  static bool applies_to(const at::Tensor& tensor);
  // Its members, in the order of the constructor's argument.
  static c10::SmallVector<at::Tensor, 3> members_of(const at::Tensor& sparse);

  // `members` must outlive the scope, and the scope this object.
  SparseAlias(AliasScope& scope, at::Tensor source, Members members);

  const at::Tensor& source() const { return source_; }
  const at::Tensor& alias() const { return alias_; }
  void mark_written(AliasScope& scope);
  // Carries what a kernel changed about a written tensor over to the device tensor: its members, sizes, and whether it is coalesced.
  void write_back(AliasScope& scope) const;

 private:
  at::Tensor source_;
  at::Tensor alias_;
  Members members_;
  bool written_ = false;
};

// A sparse CPU tensor that a kernel made, as a device tensor of core `device`; its members are adopted by the scope.
at::Tensor adopt_sparse(AliasScope& scope, const at::Tensor& result, c10::DeviceIndex device);

}  // namespace neuron::ops
