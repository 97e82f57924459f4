// See alias_scope.h.
#include "torch/ops/alias_scope.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>

#include "runtime/current_device.h"
#include "torch/device/device_allocator.h"
#include "torch/ops/sparse_alias.h"

namespace neuron::ops {

const at::Tensor& AliasScope::alias(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  const auto device = tensor.unsafeGetTensorImpl()->device();
  if (C10_UNLIKELY(!device.is_privateuseone())) {
    saw_host_tensor_ |= tensor.dim() != 0;
    return tensor;
  }
  join(device);
  return bind(tensor).tensor();
}

at::Tensor& AliasScope::alias_written(at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_privateuseone()) {
    return const_cast<at::Tensor&>(alias(tensor));
  }
  join(tensor.device());
  auto& slot = bind(tensor);
  slot.mark_written(tensor);
  return slot.tensor();
}

// The same tensor twice is one alias; tensors over one storage are aliases over one storage. Lists can be long (all parameters of a model):
// a call looks back over its last arguments only, since operands that overlap across a long list do not occur together.
AliasSlot& AliasScope::bind(const at::Tensor& tensor) {
  constexpr std::size_t kLookBack = 16;
  const auto depth = pool_.depth();
  const auto* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const AliasSlot* sharer = nullptr;
  for (auto index = depth; index > mark_ && index + kLookBack > depth; --index) {
    auto& slot = pool_.slot(index - 1);
    if (slot.source_impl() == tensor.unsafeGetTensorImpl()) {
      return slot;
    }
    if (slot.source_storage().unsafeGetStorageImpl() == storage) {
      sharer = &slot;
    }
  }
  auto& slot = pool_.push();
  slot.bind(tensor, sharer);
  return slot;
}

void AliasScope::use_device(c10::Device device) {
  if (device.is_privateuseone()) {
    join(c10::Device(device.type(), device.has_index() ? device.index() : static_cast<c10::DeviceIndex>(runtime::current_device())));
  }
}

void AliasScope::join(c10::Device device) {
  if (device_ < 0) {
    device_ = device.index();
  } else if (C10_UNLIKELY(device_ != device.index() && check_ != DeviceCheck::kAny)) {
    raise_device_mismatch(device);
  }
}

c10::DeviceIndex AliasScope::finish_arguments() {
  if (device_ < 0) {
    device_ = static_cast<c10::DeviceIndex>(runtime::current_device());
  } else if (C10_UNLIKELY(saw_host_tensor_ && check_ == DeviceCheck::kSame)) {
    raise_device_mismatch(c10::Device(c10::kCPU));
  }
  return device_;
}

void AliasScope::raise_device_mismatch(c10::Device other) const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(c10::kPrivateUse1, device_), " and ", other, "!");
}

at::Tensor AliasScope::make_device_tensor(c10::Storage storage, const c10::TensorImpl& like) const {
  const auto keys = like.key_set();
  const auto own_keys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | (keys & c10::DispatchKeySet(c10::DispatchKey::ZeroTensor));
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(std::move(storage), own_keys, like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (C10_UNLIKELY(keys.has(c10::DispatchKey::Conjugate))) {
    impl->_set_conj(true);
  }
  if (C10_UNLIKELY(keys.has(c10::DispatchKey::Negative))) {
    impl->_set_neg(true);
  }
  return tensor;
}

at::Tensor AliasScope::adopt(at::Tensor result) {
  if (!result.defined() || C10_UNLIKELY(!result.device().is_cpu())) {
    return result;
  }
  const auto& impl = *result.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl.layout() != c10::kStrided)) {
    TORCH_CHECK_NOT_IMPLEMENTED(is_sparse_layout(impl.layout()),
                                "the neuron device has dense and sparse tensors, but an operator made one "
                                "with layout ",
                                impl.layout());
    return adopt_sparse(*this, result, device_);
  }
  auto* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  for (auto index = mark_; index < pool_.depth(); ++index) {
    auto& slot = pool_.slot(index);
    if (slot.is_alias(&impl)) {
      return slot.source();
    }
    if (slot.owns(storage)) {  // the slot that the storage belongs to stands before those that share it
      return make_device_tensor(slot.source_storage(), impl);
    }
  }
  const c10::Device device(c10::kPrivateUse1, device_);
  auto& bytes = storage->_mutable_data_ptr_no_checks();
  if (C10_UNLIKELY(bytes.get() != nullptr && bytes.get_deleter() != &device::delete_block)) {
    // Bytes that the kernel did not get from this thread's allocator (a constant of its own, say) move into device memory.
    auto owned = device::device_allocator().allocate_on(device_, storage->nbytes());
    std::memcpy(owned.mutable_get(), bytes.get(), storage->nbytes());
    auto copy = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(storage->nbytes()),
                                                      std::move(owned), &device::core_allocator(device_), true);
    return make_device_tensor(c10::Storage(std::move(copy)), impl);
  }
  bytes.unsafe_set_device(device);
  storage->set_allocator(&device::core_allocator(device_));
  return make_device_tensor(impl.unsafe_storage(), impl);
}

at::Tensor& AliasScope::argument(const at::Tensor& alias) {
  for (auto index = mark_; index < pool_.depth(); ++index) {
    if (pool_.slot(index).is_alias(alias.unsafeGetTensorImpl())) {
      return pool_.slot(index).argument();
    }
  }
  return const_cast<at::Tensor&>(alias);
}

}  // namespace neuron::ops
