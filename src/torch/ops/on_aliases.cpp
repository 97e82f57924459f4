// Operators that PyTorch implements once for every device, in a way that works on the devices it knows only: they check the device's name,
// or call a kernel table (DispatchStub) that has no entry for others. The same implementations, on aliases.
#include <ATen/core/Tensor.h>
#include <ATen/ops/conj_physical_native.h>
#include <ATen/ops/mode_native.h>

#include "torch/ops/alias_kernel.h"

namespace neuron::ops {

at::Tensor& conj_physical_(at::Tensor& self) { return AliasCall<&at::native::conj_physical_>::call(self); }

std::tuple<at::Tensor&, at::Tensor&> mode_values(const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values,
                                                 at::Tensor& indices) {
  return AliasCall<&at::native::mode_out>::call(self, dim, keepdim, values, indices);
}

}  // namespace neuron::ops
