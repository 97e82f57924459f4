// Whether a tensor may take over another's data (`a.data = b`). Module.to() asks: told no, it makes new parameters, which unties
// shared weights and leaves an optimizer that was made before with parameters of the CPU.
// It is a question about types of tensors rather than an operator, so it is answered here and not in the operator table.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_has_compatible_shallow_copy_type_native.h>
#include <torch/library.h>

namespace neuron::device {
namespace {

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  // PyTorch's own answer knows only the devices in its tree. As with those, dense tensors of the device and of the CPU are of one kind.
  const auto dense = [](const at::Tensor& tensor) {
    const auto keys = tensor.key_set();
    return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
           keys.has_any(c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit}));
  };
  return (dense(self) && dense(from)) || at::native::_has_compatible_shallow_copy_type(self, from);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type); }

}  // namespace
}  // namespace neuron::device
