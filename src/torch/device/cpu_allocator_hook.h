// Makes CPU kernels allocate device memory: while a DeviceAllocationScope is open on a thread, CPU allocations of that thread come from a
// core's memory.
//
// This is how results, growing `out=` tensors and temporaries of CPU kernels that run on aliases of device tensors end up in device memory
// and are charged to the core. It stands on the official c10::SetCPUAllocator. Threads without an open scope get what the previous
// allocator gives.
#pragma once

#include <c10/core/Device.h>

#include "torch/device/initialize.h"

namespace neuron::device {
namespace detail {

// Initial-exec: one addition instead of a call of __tls_get_addr on each CPU allocation of the process.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local c10::DeviceIndex allocation_target = -1;

}  // namespace detail

// The core that CPU allocations of this thread are charged to, or -1.
inline c10::DeviceIndex device_allocation_target() noexcept { return detail::allocation_target; }

// Scopes nest; the innermost counts. A scope must end on the thread that opened it.
class DeviceAllocationScope {
 public:
  explicit DeviceAllocationScope(c10::DeviceIndex device) : previous_(detail::allocation_target) {
    initialize_device();
    detail::allocation_target = device;
  }
  ~DeviceAllocationScope() { detail::allocation_target = previous_; }
  DeviceAllocationScope(const DeviceAllocationScope&) = delete;
  DeviceAllocationScope& operator=(const DeviceAllocationScope&) = delete;

 private:
  c10::DeviceIndex previous_;
};

// Suspends an open scope: what is allocated meanwhile is ordinary host memory (copies to the host, host-side helpers).
class HostAllocationScope {
 public:
  HostAllocationScope() noexcept : previous_(detail::allocation_target) { detail::allocation_target = -1; }
  ~HostAllocationScope() { detail::allocation_target = previous_; }
  HostAllocationScope(const HostAllocationScope&) = delete;
  HostAllocationScope& operator=(const HostAllocationScope&) = delete;

 private:
  c10::DeviceIndex previous_;
};

// Called once, by initialize_device().
void install_cpu_allocator_hook();

}  // namespace neuron::device
