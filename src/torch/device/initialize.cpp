// See initialize.h.
#include "torch/device/initialize.h"

#include "runtime/runtime.h"
#include "torch/device/cpu_allocator_hook.h"
#include "torch/device/error.h"

namespace neuron::device::detail {

std::atomic<bool> device_ready{false};

void initialize_device_slow() {
  translate_errors([] { runtime::Runtime::instance().initialize(); });
  install_cpu_allocator_hook();
  device_ready.store(true, std::memory_order_release);
}

}  // namespace neuron::device::detail
