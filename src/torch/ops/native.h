// Building blocks that our own operator kernels share.
#pragma once

#include <ATen/core/Tensor.h>

namespace neuron::ops {

// A contiguous, uninitialised tensor on one core.
at::Tensor empty_on(at::IntArrayRef size, at::ScalarType dtype, c10::DeviceIndex core);

// An uninitialised tensor on one core, with these strides.
at::Tensor empty_strided_on(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype, c10::DeviceIndex core);

// Whether two tensors have the same dtype, sizes and strides, without gaps, and no pending conjugation or negation:
// then element i of one is element i of the other in memory order.
inline bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  const auto* x = a.unsafeGetTensorImpl();
  const auto* y = b.unsafeGetTensorImpl();
  return x->dtype() == y->dtype() && x->is_non_overlapping_and_dense_or_false() && x->sizes() == y->sizes() &&
         x->strides() == y->strides() && !x->is_conj() && !y->is_conj() && !x->is_neg() && !y->is_neg();
}

}  // namespace neuron::ops
