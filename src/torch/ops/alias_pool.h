// Reusable CPU tensors that stand in for device tensors while a CPU kernel runs on them.
//
// An alias has its own TensorImpl and StorageImpl (a tensor's device is its storage's device, so the two cannot be shared), both reused
// from call to call: mirroring a device tensor copies metadata and one pointer, and allocates nothing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <memory>
#include <vector>

namespace neuron::ops {

// A CPU TensorImpl that can take over the metadata of a device TensorImpl.
class AliasTensorImpl final : public c10::TensorImpl {
 public:
  explicit AliasTensorImpl(c10::Storage storage);
  void mirror(const c10::TensorImpl& source);
  void use_storage(const c10::Storage& storage) { storage_ = storage; }
};

// One alias and the device tensor that it stands for during a call.
class AliasSlot {
 public:
  AliasSlot();

  // Points the alias at `source`'s bytes and metadata. `source` must outlive the call; the alias does not own the bytes. Device tensors
  // that share a storage need aliases that share one, or kernels could not see that operands overlap: `sharer` is the slot that has it
  // already, or null.
  void bind(const at::Tensor& source, const AliasSlot* sharer);
  // Ends the call. Carries changes that the kernel made to a written tensor (resize, reallocation) over to the device tensor. Slots end in
  // reverse order.
  void release() noexcept;

  at::Tensor& tensor() { return tensor_; }
  const c10::TensorImpl* source_impl() const { return source_; }
  // The caller's own object, for results that are returned by reference; only meaningful for arguments that are references themselves.
  at::Tensor& argument() const { return const_cast<at::Tensor&>(*argument_); }
  at::Tensor source() const { return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(source_)); }
  const c10::Storage& source_storage() const { return source_->unsafe_storage(); }
  bool is_alias(const c10::TensorImpl* impl) const { return tensor_.unsafeGetTensorImpl() == impl; }
  bool owns(const c10::StorageImpl* storage) const { return storage_.unsafeGetStorageImpl() == storage; }
  void mark_written(const at::Tensor& argument) {
    argument_ = &argument;
    written_ = true;
  }

 private:
  AliasTensorImpl& impl() const { return *static_cast<AliasTensorImpl*>(tensor_.unsafeGetTensorImpl()); }
  void write_back();
  void abandon();

  c10::Storage storage_;  // its own, which the alias uses unless it shares another's
  at::Tensor tensor_;
  const at::Tensor* argument_ = nullptr;
  c10::TensorImpl* source_ = nullptr;
  bool written_ = false;
  bool sharing_ = false;
};

// Per-thread stack of slots; scopes take from the top and give back in reverse order.
class AliasPool {
 public:
  static AliasPool& of_this_thread();

  std::size_t depth() const { return depth_; }
  AliasSlot& push() {
    if (depth_ == slots_.size()) {
      slots_.push_back(std::make_unique<AliasSlot>());
    }
    return *slots_[depth_++];
  }
  AliasSlot& slot(std::size_t index) { return *slots_[index]; }
  void pop_to(std::size_t depth) noexcept {
    while (depth_ > depth) {
      slots_[--depth_]->release();
    }
  }

 private:
  std::vector<std::unique_ptr<AliasSlot>> slots_;
  std::size_t depth_ = 0;
};

}  // namespace neuron::ops
