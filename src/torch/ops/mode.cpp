// torch.mode(..., out=): PyTorch's implementation serves every device but refuses those that it does not know by name. The CPU's, on
// aliases.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mode_native.h>

#include "torch/ops/alias_kernel.h"

namespace neuron::ops {

std::tuple<at::Tensor&, at::Tensor&> mode_values(const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values,
                                                 at::Tensor& indices) {
  return AliasCall<&at::native::mode_out>::call(self, dim, keepdim, values, indices);
}

}  // namespace neuron::ops
