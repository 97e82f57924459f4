// First use of the device in this process.
#pragma once

#include <atomic>

namespace neuron::device {
namespace detail {

extern std::atomic<bool> device_ready;
void initialize_device_slow();

}  // namespace detail

// Starts the runtime and installs the CPU allocator hook, once. Importing the package does neither. Raises if the process was forked from
// one that used the device, or if the environment describes no usable device. Later calls cost one load.
inline void initialize_device() {
  if (!detail::device_ready.load(std::memory_order_acquire)) [[unlikely]] {
    detail::initialize_device_slow();
  }
}

}  // namespace neuron::device
