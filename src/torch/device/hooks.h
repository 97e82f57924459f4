// What torch asks of the accelerator without going through the dispatcher: availability, current device, generators, pinned memory, storage
// resize.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace neuron::device {

class NeuronHooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override;
  bool isBuilt() const override { return true; }
  // Neither initialises nor throws.
  bool isAvailable() const override;
  bool hasPrimaryContext(c10::DeviceIndex device) const override;

  c10::DeviceIndex deviceCount() const override;
  c10::DeviceIndex getCurrentDevice() const override;
  void setCurrentDevice(c10::DeviceIndex device) const override;
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override;
  // A negative index changes nothing; returns the previous device.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override;

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override;
  at::Generator getNewGenerator(c10::DeviceIndex device) const override;

  // Which core owns an address; raises for anything that is not device memory.
  at::Device getDeviceFromPtr(void* data) const override;
  bool isPinnedPtr(const void* data) const override;
  at::Allocator* getPinnedMemoryAllocator() const override;

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override;
};

}  // namespace neuron::device
