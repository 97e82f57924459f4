// How a program expects a tensor to lie in memory, for calls that take pointers.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "compiler/type.h"

namespace neuron::compile {

struct TensorLayout {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType dtype;

  static TensorLayout of(const compiler::Type& type);

  // Whether the elements lie as expected. Throws if there are others than expected.
  bool matches(const at::Tensor& tensor) const;
  // The same elements, as expected.
  at::Tensor copy(const at::Tensor& tensor) const;
  at::Tensor make(c10::DeviceIndex core) const;
};

}  // namespace neuron::compile
