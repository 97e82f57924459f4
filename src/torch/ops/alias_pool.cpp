// Aliases and their pool. See alias_pool.h.
#include "torch/ops/alias_pool.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COWDeleter.h>

#include "torch/device/device_allocator.h"

namespace neuron::ops {
namespace {

// An alias looks like any CPU tensor, autograd keys included: kernels run below autograd, where the thread's exclusion set removes those
// keys.
constexpr c10::DispatchKeySet kCpuKeys({c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU, c10::DispatchKey::ADInplaceOrView});
constexpr c10::DispatchKeySet kLazyBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});

c10::DataPtr borrowed(void* bytes) { return {bytes, c10::Device(c10::kCPU)}; }

void* bytes_of(const c10::TensorImpl* tensor) {
  return tensor->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
}

void release_storage(void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); }

}  // namespace

AliasTensorImpl::AliasTensorImpl(c10::Storage storage) : TensorImpl(std::move(storage), kCpuKeys, caffe2::TypeMeta::Make<float>()) {}

void AliasTensorImpl::mirror(const c10::TensorImpl& source) {
  extra_meta_.reset();
  copy_generic_tensor_metadata(&source, this);
  device_opt_ = c10::Device(c10::kCPU);
  key_set_ = kCpuKeys | (source.key_set() & kLazyBits);
}

AliasSlot::AliasSlot()
    // Resizable, and growing through the CPU allocator: inside a DeviceAllocationScope that is device memory.
    : storage_(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, borrowed(nullptr), c10::GetCPUAllocator(),
                                                     /*resizable=*/true)),
      tensor_(c10::make_intrusive<AliasTensorImpl>(storage_)) {}

void AliasSlot::bind(const at::Tensor& source, const AliasSlot* sharer) {
  argument_ = &source;
  source_ = source.unsafeGetTensorImpl();
  written_ = false;
  impl().mirror(*source_);
  if (C10_UNLIKELY(sharer != nullptr)) {
    sharing_ = true;
    impl().use_storage(sharer->impl().unsafe_storage());
    return;
  }
  auto* storage = source_->unsafe_storage().unsafeGetStorageImpl();
  // A lazily cloned storage must become its own before a kernel that may write sees its address.
  if (C10_UNLIKELY(storage->_mutable_data_ptr_no_checks().get_deleter() == &c10::impl::cow::cow_deleter)) {
    storage->mutable_data_ptr();
  }
  storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(borrowed(storage->_mutable_data_ptr_no_checks().get()));
  storage_.unsafeGetStorageImpl()->set_nbytes(storage->nbytes());
}

void AliasSlot::release() noexcept {
  if (written_) {
    write_back();
  }
  if (C10_UNLIKELY(sharing_)) {
    storage_.unsafeGetStorageImpl()->set_data_ptr_noswap(borrowed(bytes_of(source_)));
    storage_.unsafeGetStorageImpl()->set_nbytes(source_->unsafe_storage().nbytes());
    impl().use_storage(storage_);
    sharing_ = false;
  }
  // One count for this slot's handle, one for the alias's own.
  if (C10_UNLIKELY(tensor_.use_count() != 1 || storage_.use_count() != 2)) {
    abandon();
  }
  source_ = nullptr;
}

void AliasSlot::write_back() {
  auto* used = impl().unsafe_storage().unsafeGetStorageImpl();
  auto& bytes = used->_mutable_data_ptr_no_checks();
  if (C10_UNLIKELY(bytes.get() != bytes_of(source_))) {
    // The kernel grew the tensor; the new bytes are device memory already, only their tag is wrong. The alias borrows them from now on:
    // others over the same storage follow, and the kernel may have kept it.
    auto* new_bytes = bytes.get();
    auto* storage = source_->unsafe_storage().unsafeGetStorageImpl();
    bytes.unsafe_set_device(source_->device());
    storage->set_data_ptr_noswap(std::move(bytes));
    storage->set_nbytes(used->nbytes());
    used->set_data_ptr_noswap(borrowed(new_bytes));
  }
  const auto& alias = impl();
  if (C10_UNLIKELY(alias.sizes() != source_->sizes() || alias.strides() != source_->strides())) {
    source_->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
  }
  // Some kernels write the conjugate of a result and say so (linalg.lu_solve).
  if (C10_UNLIKELY(alias.is_conj() != source_->is_conj())) {
    source_->_set_conj(alias.is_conj());
  }
  if (C10_UNLIKELY(alias.is_neg() != source_->is_neg())) {
    source_->_set_neg(alias.is_neg());
  }
}

// A kernel kept the alias (for example inside an object that it returned): leave it to that holder, with shared ownership of the bytes, and
// start afresh.
void AliasSlot::abandon() {
  auto* storage = storage_.unsafeGetStorageImpl();
  if (source_ != nullptr && storage->_mutable_data_ptr_no_checks().get() == bytes_of(source_)) {
    auto* owner = source_->unsafe_storage().unsafeGetStorageImpl();
    c10::raw::intrusive_ptr::incref(owner);
    storage->set_data_ptr_noswap(c10::DataPtr(bytes_of(source_), owner, &release_storage, c10::Device(c10::kCPU)));
  }
  *this = AliasSlot();
}

AliasPool& AliasPool::of_this_thread() {
  thread_local AliasPool pool;
  return pool;
}

}  // namespace neuron::ops
