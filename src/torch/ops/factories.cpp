// Operators that make or resize device memory: empty, empty_strided, resize_, set_.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <c10/core/DeviceGuard.h>

#include "runtime/current_device.h"
#include "runtime/runtime.h"
#include "torch/device/device_allocator.h"
#include "torch/ops/native.h"

namespace neuron::ops {
namespace {

constexpr c10::DispatchKeySet kDeviceKeys(c10::DispatchKey::PrivateUse1);

c10::DeviceIndex core_of(std::optional<at::Device> device) {
  const auto chosen = at::device_or_default(device);
  TORCH_CHECK(chosen.is_privateuseone(), "expected a neuron device, got ", chosen);
  if (!chosen.has_index()) {
    return static_cast<c10::DeviceIndex>(runtime::current_device());
  }
  const auto cores = runtime::Runtime::instance().device_count();
  TORCH_CHECK_VALUE(chosen.index() < cores, "invalid device ", chosen, ": this process sees ", cores,
                    " NeuronCores (neuron:0 to neuron:", cores - 1, ")");
  return chosen.index();
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::layout_or_default(layout) == at::kStrided,
                              "the neuron device has dense and sparse tensors only, got layout ", at::layout_or_default(layout));
  TORCH_CHECK(!at::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

at::Tensor make_tensor(std::size_t bytes, caffe2::TypeMeta dtype, c10::DeviceIndex core) {
  auto& allocator = device::core_allocator(core);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
                                                       allocator.allocate_on(core, bytes), &allocator, /*resizable=*/true);
  return at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage), kDeviceKeys, dtype);
}

at::Tensor filled_if_deterministic(at::Tensor tensor) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

}  // namespace

at::Tensor empty_on(at::IntArrayRef size, at::ScalarType dtype, c10::DeviceIndex core) {
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  auto tensor = make_tensor(at::detail::computeStorageNbytesContiguous(size, type.itemsize()), type, core);
  if (size.size() != 1 || size[0] != 0) {
    tensor.unsafeGetTensorImpl()->generic_set_sizes_contiguous(size);
  }
  return tensor;
}

at::Tensor empty_strided_on(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype, c10::DeviceIndex core) {
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  auto tensor = make_tensor(at::detail::computeStorageNbytes(size, stride, type.itemsize()), type, core);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return tensor;
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  auto tensor = empty_on(size, at::dtype_or_default(dtype), core_of(device));
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Contiguous) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  return filled_if_deterministic(std::move(tensor));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  return filled_if_deterministic(empty_strided_on(size, stride, at::dtype_or_default(dtype), core_of(device)));
}

// PyTorch's resize works on any storage whose allocator gives memory that the host can copy; ours allocates on the current core, hence the
// guards.
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceGuard guard(self.device());
  return at::native::resize_(self, size, memory_format);
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t storage_offset, at::IntArrayRef size,
                                      at::IntArrayRef stride) {
  const c10::DeviceGuard guard(self.device());
  return at::native::set_storage_cpu_(self, std::move(source), storage_offset, size, stride);
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source_storage_offset(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() != source.unsafeGetTensorImpl()) {
    set_source_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  }
  return self;
}

at::Tensor& set_empty(at::Tensor& self) {
  auto& allocator = device::core_allocator(self.device().index());
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       allocator.allocate_on(self.device().index(), 0), &allocator, /*resizable=*/true);
  return set_source_storage_offset(self, c10::Storage(std::move(storage)), 0, {0}, {});
}

void record_stream(at::Tensor& self, at::Stream stream) { device::device_allocator().recordStream(self.storage().data_ptr(), stream); }

}  // namespace neuron::ops
