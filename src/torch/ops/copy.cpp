// Copies between tensors on any two of {host, core}. Same layout: one memory copy, on several threads when large. Else PyTorch's CPU copy
// on aliases.
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_native.h>

#include <cstring>

#include "runtime/memory/file_pages.h"
#include "runtime/telemetry.h"
#include "torch/ops/alias_scope.h"
#include "torch/ops/native.h"

namespace neuron::ops {
namespace {

// Below this a second thread, or a look at the source's pages, costs more than it brings.
constexpr int64_t kParallelBytes = int64_t{1} << 20;

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes < kParallelBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  at::parallel_for(0, bytes, kParallelBytes / 2, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
  });
}

void count_transfer(const at::Tensor& to, const at::Tensor& from) {
  using runtime::Counter;
  if (from.is_cpu()) {
    runtime::add(Counter::kHostToDeviceCalls);
    runtime::add(Counter::kHostToDeviceBytes, from.nbytes());
  } else if (to.is_cpu()) {
    runtime::add(Counter::kDeviceToHostCalls);
    runtime::add(Counter::kDeviceToHostBytes, from.nbytes());
  } else {
    runtime::add(Counter::kDeviceToDeviceCalls);
    runtime::add(Counter::kDeviceToDeviceBytes, from.nbytes());
  }
}

}  // namespace

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) {
    return self;
  }
  // Zero tensors have no bytes; copies are among the few operators that meet one.
  TORCH_CHECK(!self._is_zerotensor(),
              "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero tensor.");
  if (C10_UNLIKELY(src._is_zerotensor())) {
    return self.zero_();
  }
  count_transfer(self, src);
  if (same_layout(self, src) && (self.is_cpu() || self.is_privateuseone()) && (src.is_cpu() || src.is_privateuseone())) {
    const auto bytes = static_cast<int64_t>(self.nbytes());
    if (bytes != 0) {
      if (C10_UNLIKELY(self.is_alias_of(src))) {
        at::assert_no_partial_overlap(self, src);  // the CPU's copy refuses it as well
      }
      copy_bytes(self.mutable_data_ptr(), src.const_data_ptr(), bytes);
      if (bytes >= kParallelBytes && src.is_cpu() && self.is_privateuseone()) {
        runtime::release_file_pages(src.const_data_ptr(), bytes);
      }
    }
    return self;
  }
  AliasScope scope(DeviceCheck::kAny);
  auto& to = scope.alias_written(self);
  const auto& from = scope.alias(src);
  const device::DeviceAllocationScope allocations(scope.finish_arguments());
  at::native::copy_(to, from, non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  auto target = dst;
  copy_(target, self, non_blocking);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, /*non_blocking=*/false);
}

}  // namespace neuron::ops
