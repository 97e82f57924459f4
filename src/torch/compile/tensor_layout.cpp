// Checks and copies of operands.
#include "torch/compile/tensor_layout.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include "torch/compile/torch_types.h"
#include "torch/ops/native.h"

namespace neuron::compile {

TensorLayout TensorLayout::of(const compiler::Type& type) {
  return {type.tensor.sizes, type.tensor.strides, to_scalar_type(type.tensor.scalar)};
}

bool TensorLayout::matches(const at::Tensor& tensor) const {
  if (tensor.scalar_type() != dtype || tensor.is_neg() || tensor._is_zerotensor()) {
    return false;
  }
  const auto actual_sizes = tensor.sizes();
  const auto actual_strides = tensor.strides();
  TORCH_CHECK(actual_sizes == at::IntArrayRef(sizes), "the program expects a tensor of sizes ", at::IntArrayRef(sizes), ", got ",
              actual_sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (actual_strides[i] != strides[i] && sizes[i] != 1) {
      return false;
    }
  }
  return true;
}

at::Tensor TensorLayout::copy(const at::Tensor& tensor) const {
  at::Tensor copy = at::empty_strided(sizes, strides, tensor.options().dtype(dtype));
  copy.copy_(tensor);
  return copy;
}

at::Tensor TensorLayout::make(c10::DeviceIndex core) const { return ops::empty_strided_on(sizes, strides, dtype, core); }

}  // namespace neuron::compile
