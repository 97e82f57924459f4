// See initialize.h.
#include "torch/device/initialize.h"

#include <pthread.h>

#include "runtime/runtime.h"
#include "torch/device/cpu_allocator_hook.h"
#include "torch/device/error.h"

namespace neuron::device::detail {

std::atomic<bool> device_ready{false};

void initialize_device_slow() {
  translate_errors([] { runtime::Runtime::instance().initialize(); });
  install_cpu_allocator_hook();
  // A forked child must not use the device: there every use comes back here, and the runtime says why.
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { device_ready.store(false, std::memory_order_relaxed); });
  device_ready.store(true, std::memory_order_release);
}

}  // namespace neuron::device::detail
