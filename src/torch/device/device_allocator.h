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
  // Memory on the current device, ordered by the current stream. Zero bytes give a null pointer that still names its device.
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
};

DeviceAllocator& device_allocator();

// Device memory that passes for CPU memory (same bytes, same deleter, CPU tag): what CPU kernels get inside a DeviceAllocationScope.
c10::DataPtr allocate_as_cpu(c10::DeviceIndex device, std::size_t bytes);

}  // namespace neuron::device
