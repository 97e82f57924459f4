// Zero tensors: what forward-mode differentiation uses for a tangent that is zero everywhere. They have a shape and a device, but no bytes.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <optional>
#include <utility>

namespace neuron::ops {

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format);

at::Tensor efficientzerotensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                               std::optional<at::Device> device, std::optional<bool> pin_memory) {
  // An empty tensor checks the arguments as every factory does, and names the core.
  const at::Tensor model = empty({0}, dtype, layout, device, pin_memory, std::nullopt);
  at::detail::check_size_nonnegative(size);
  constexpr auto kKeys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  const auto bytes = at::detail::computeStorageNbytesContiguous(size, model.dtype().itemsize());
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
                                                       c10::DataPtr(nullptr, model.device()), nullptr, /*resizable=*/false);
  auto result = at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage), kKeys, model.dtype());
  result.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return result;
}

}  // namespace neuron::ops
