// The life of one operator call on aliases: hands out aliases for the arguments, checks devices, and turns the CPU results into device
// tensors.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/guard/access_scope.h"
#include "torch/device/cpu_allocator_hook.h"
#include "torch/ops/alias_pool.h"

namespace neuron::ops {

enum class DeviceCheck : std::uint8_t {
  kSame,  // every tensor on one core; 0-d CPU tensors may join
  kNone,  // the operator accepts CPU tensors beside those of one core (indices, lengths), as it does on CUDA
  kAny,   // tensors of several cores and the host (copies)
};

class AliasScope {
 public:
  explicit AliasScope(DeviceCheck check = DeviceCheck::kSame) : pool_(AliasPool::of_this_thread()), mark_(pool_.depth()), check_(check) {}
  ~AliasScope() { pool_.pop_to(mark_); }
  AliasScope(const AliasScope&) = delete;
  AliasScope& operator=(const AliasScope&) = delete;

  // The CPU alias of a device tensor; an undefined or CPU tensor as it is. The result lives as long as the scope.
  const at::Tensor& alias(const at::Tensor& tensor);
  at::Tensor& alias_written(at::Tensor& tensor);

  // The core that a factory's `device=` argument names.
  void use_device(c10::Device device);

  // The core of the call: that of the arguments, else the current one. Raises the usual error if a CPU tensor met device tensors.
  c10::DeviceIndex finish_arguments();

  // A result as a device tensor: the argument that it is, a view of the argument that it views, or its own bytes re-tagged.
  at::Tensor adopt(at::Tensor result);
  // The argument behind an alias that the kernel returned by reference.
  at::Tensor& argument(const at::Tensor& alias);

 private:
  AliasSlot& bind(const at::Tensor& tensor);
  void join(c10::Device device);
  [[noreturn]] void raise_device_mismatch(c10::Device other) const;
  at::Tensor make_device_tensor(c10::Storage storage, const c10::TensorImpl& like) const;

  runtime::guard::AccessScope access_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  AliasPool& pool_;
  std::size_t mark_;
  c10::DeviceIndex device_ = -1;
  DeviceCheck check_;
  bool saw_host_tensor_ = false;
};

}  // namespace neuron::ops
