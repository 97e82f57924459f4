// See hooks.h.
#include "torch/device/hooks.h"

#include "runtime/current_device.h"
#include "runtime/runtime.h"
#include "torch/device/error.h"
#include "torch/device/generator.h"
#include "torch/device/host_allocator.h"
#include "torch/device/initialize.h"
#include "torch/device/storage_resize.h"
#include "torch/device/stream_conversion.h"

namespace neuron::device {
namespace {

c10::DeviceIndex checked_index(c10::DeviceIndex device) {
  const auto index = index_or_current(device);
  translate_errors([&] { runtime::check_device(index); });
  return static_cast<c10::DeviceIndex>(index);
}

}  // namespace

void NeuronHooks::init() const { initialize_device(); }

bool NeuronHooks::isAvailable() const { return deviceCount() > 0; }

bool NeuronHooks::hasPrimaryContext(c10::DeviceIndex device) const {
  checked_index(device);
  return runtime::Runtime::instance().initialized();
}

c10::DeviceIndex NeuronHooks::deviceCount() const { return static_cast<c10::DeviceIndex>(runtime::Runtime::instance().device_count()); }

c10::DeviceIndex NeuronHooks::getCurrentDevice() const { return static_cast<c10::DeviceIndex>(runtime::current_device()); }

void NeuronHooks::setCurrentDevice(c10::DeviceIndex device) const {
  translate_errors([&] { runtime::set_device(device); });
}

c10::DeviceIndex NeuronHooks::exchangeDevice(c10::DeviceIndex device) const {
  return translate_errors([&] { return static_cast<c10::DeviceIndex>(runtime::exchange_device(device)); });
}

c10::DeviceIndex NeuronHooks::maybeExchangeDevice(c10::DeviceIndex device) const {
  return device < 0 ? getCurrentDevice() : exchangeDevice(device);
}

const at::Generator& NeuronHooks::getDefaultGenerator(c10::DeviceIndex device) const { return default_generator(checked_index(device)); }

at::Generator NeuronHooks::getNewGenerator(c10::DeviceIndex device) const { return make_generator(checked_index(device)); }

at::Device NeuronHooks::getDeviceFromPtr(void* data) const {
  const auto device = runtime::Runtime::instance().device_of(data);
  TORCH_CHECK_VALUE(device.has_value(), "address ", data, " does not belong to the memory of a neuron device");
  return device_at(*device);
}

bool NeuronHooks::isPinnedPtr(const void* data) const { return is_pinned_host_memory(data); }

at::Allocator* NeuronHooks::getPinnedMemoryAllocator() const { return &pinned_host_allocator(); }

void NeuronHooks::resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const {
  resize_storage(*storage.unsafeGetStorageImpl(), bytes);
}

namespace {

// Leaked: torch asks the hooks until the process ends.
[[maybe_unused]] const bool kHooksRegistered = [] {
  at::RegisterPrivateUse1HooksInterface(new NeuronHooks());
  return true;
}();

}  // namespace
}  // namespace neuron::device
