// The device's memory as torch sees it: a c10::DeviceAllocator over the runtime's caching allocators, one per core.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>

namespace neuron::runtime {
struct Block;
}

namespace neuron::device {

// Deleter of every DataPtr that holds device memory, whatever its device tag; the context is the data pointer. Comparing a deleter with it
// recognises device memory.
void delete_block(void* data);

// The block behind a data pointer that starts a device allocation, or null.
runtime::Block* block_at(const void* data) noexcept;

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  // With a core, allocate() serves that core; without, the current one.
  explicit DeviceAllocator(c10::DeviceIndex core = -1) : core_(core) {}

  // Memory ordered by the current stream. Zero bytes give a null pointer that still names its device.
  c10::DataPtr allocate(std::size_t bytes) override;
  // The same on a given core (a valid index).
  c10::DataPtr allocate_on(c10::DeviceIndex device, std::size_t bytes);

  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override;

  bool initialized() override;
  void emptyCache(c10::MempoolId_t pool) override;
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  // Free and total bytes of the core's memory.
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override;

 private:
  c10::DeviceIndex core_;
};

// The allocator that torch knows: memory of the current device.
DeviceAllocator& device_allocator();
// The allocator to give to storages: one that belongs to a core keeps to it when the storage grows or a lazy clone gets bytes of its own,
// whichever device is current by then.
DeviceAllocator& core_allocator(c10::DeviceIndex core);

// Device memory that passes for CPU memory (same bytes, same deleter, CPU tag): what CPU kernels get inside a DeviceAllocationScope.
c10::DataPtr allocate_as_cpu(c10::DeviceIndex device, std::size_t bytes);

}  // namespace neuron::device
