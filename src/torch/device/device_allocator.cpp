// See device_allocator.h.
#include "torch/device/device_allocator.h"

#include <cstring>
#include <limits>
#include <new>

#include "runtime/current_device.h"
#include "runtime/error.h"
#include "runtime/guard/access_scope.h"
#include "runtime/runtime.h"
#include "torch/device/block_map.h"
#include "torch/device/error.h"
#include "torch/device/initialize.h"
#include "torch/device/stream_conversion.h"

namespace neuron::device {
namespace {

runtime::Runtime& device_runtime() {
  static auto& runtime = runtime::Runtime::instance();
  return runtime;
}

// For torch.profiler(profile_memory=True); `bytes` is negative when memory is given back.
[[gnu::noinline, gnu::cold]] void report_to_profiler(runtime::Block* block, std::int64_t bytes) {
  const auto stats = device_runtime().allocator(block->device()).stats();
  c10::reportMemoryUsageToProfiler(block->data(), bytes, static_cast<std::size_t>(stats.active_bytes.all.current),
                                   static_cast<std::size_t>(stats.reserved_bytes.all.current), device_at(block->device()));
}

// The one way to device memory; never called with zero bytes.
void* allocate_bytes(c10::DeviceIndex device, std::size_t bytes) {
  return translate_errors([&] {
    auto& allocator = device_runtime().allocator(device);
    auto* block = allocator.allocate(bytes, device_runtime().streams().current_stream(device).id);
    try {
      BlockMap::insert(block->data(), block);
    } catch (const std::bad_alloc&) {
      runtime::CachingAllocator::free(block);
      throw runtime::Error(runtime::ErrorCode::kOutOfHostMemory, "the host has no memory left for the bookkeeping of a device allocation");
    }
    if (c10::memoryProfilingEnabled()) [[unlikely]] {
      report_to_profiler(block, static_cast<std::int64_t>(block->size()));
    }
    return block->data();
  });
}

c10::DataPtr tagged(c10::DeviceIndex device, std::size_t bytes, c10::Device tag) {
  if (bytes == 0) {
    return {nullptr, tag};
  }
  auto* data = allocate_bytes(device, bytes);
  return {data, data, &delete_block, tag};
}

c10::CachingAllocator::Stat to_torch(const runtime::Stat& stat) {
  c10::CachingAllocator::Stat result;
  result.current = stat.current;
  result.peak = stat.peak;
  result.allocated = stat.allocated;
  result.freed = stat.freed;
  return result;
}

c10::CachingAllocator::StatArray to_torch(const runtime::StatGroup& group) {
  using c10::CachingAllocator::StatType;
  c10::CachingAllocator::StatArray result;
  result[static_cast<std::size_t>(StatType::AGGREGATE)] = to_torch(group.all);
  result[static_cast<std::size_t>(StatType::SMALL_POOL)] = to_torch(group.small);
  result[static_cast<std::size_t>(StatType::LARGE_POOL)] = to_torch(group.large);
  return result;
}

runtime::CachingAllocator& allocator_of(c10::DeviceIndex device) {
  initialize_device();
  return translate_errors([&]() -> runtime::CachingAllocator& { return device_runtime().allocator(index_or_current(device)); });
}

}  // namespace

void delete_block(void* data) {
  auto* block = BlockMap::find(data);
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(block, -static_cast<std::int64_t>(block->size()));
  }
  BlockMap::erase(data);
  runtime::CachingAllocator::free(block);
}

runtime::Block* block_at(const void* data) noexcept { return BlockMap::find(data); }

DeviceAllocator& core_allocator(c10::DeviceIndex core) {
  // Slot 0 is the current device's. Leaked: storages hold pointers to them until the process ends.
  static auto* const slots = [] {
    constexpr int kSlots = std::numeric_limits<c10::DeviceIndex>::max() + 2;
    auto* allocators = static_cast<DeviceAllocator*>(::operator new(kSlots * sizeof(DeviceAllocator)));
    for (int slot = 0; slot < kSlots; ++slot) {
      new (allocators + slot) DeviceAllocator(static_cast<c10::DeviceIndex>(slot - 1));
    }
    return allocators;
  }();
  return slots[core + 1];
}

DeviceAllocator& device_allocator() { return core_allocator(-1); }

c10::DataPtr allocate_as_cpu(c10::DeviceIndex device, std::size_t bytes) {
  return tagged(device, bytes, c10::Device(c10::DeviceType::CPU));
}

c10::DataPtr DeviceAllocator::allocate_on(c10::DeviceIndex device, std::size_t bytes) {
  initialize_device();
  return tagged(device, bytes, device_at(device));
}

c10::DataPtr DeviceAllocator::allocate(std::size_t bytes) {
  return allocate_on(static_cast<c10::DeviceIndex>(index_or_current(core_)), bytes);
}

void DeviceAllocator::copy_data(void* destination, const void* source, std::size_t bytes) const {
  const runtime::guard::AccessScope access;
  std::memcpy(destination, source, bytes);
}

bool DeviceAllocator::initialized() { return device_runtime().initialized(); }

void DeviceAllocator::emptyCache(c10::MempoolId_t /*pool*/) {
  if (!initialized()) {
    return;
  }
  for (int device = 0; device < device_runtime().device_count(); ++device) {
    translate_errors([&] { device_runtime().allocator(device).empty_cache(); });
  }
}

void DeviceAllocator::recordStream(const c10::DataPtr& pointer, c10::Stream stream) {
  // Views share the pointer of their storage; memory that is not ours (a wrapped foreign buffer) has nothing to record.
  auto* block = pointer.get_deleter() == &delete_block ? BlockMap::find(pointer.get_context()) : nullptr;
  if (block != nullptr) {
    translate_errors([&] { device_runtime().allocator(block->device()).record_stream(block, stream.id()); });
  }
}

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(c10::DeviceIndex device) {
  const auto stats = allocator_of(device).stats();
  c10::CachingDeviceAllocator::DeviceStats result;
  // torch says "allocated" for what callers own and "active" for that plus what a recorded stream still uses; the runtime's names are the
  // other way round, as in the device's own memory_stats().
  result.allocation = to_torch(stats.active_blocks);
  result.allocated_bytes = to_torch(stats.active_bytes);
  result.active = to_torch(stats.allocations);
  result.active_bytes = to_torch(stats.allocated_bytes);
  result.segment = to_torch(stats.segments);
  result.reserved_bytes = to_torch(stats.reserved_bytes);
  result.inactive_split = to_torch(stats.inactive_split_blocks);
  result.inactive_split_bytes = to_torch(stats.inactive_split_bytes);
  result.requested_bytes = to_torch(stats.requested_bytes);
  result.num_alloc_retries = stats.num_alloc_retries;
  result.num_ooms = stats.num_ooms;
  result.num_device_alloc = stats.segments.all.allocated;
  result.num_device_free = stats.segments.all.freed;
  return result;
}

void DeviceAllocator::resetAccumulatedStats(c10::DeviceIndex device) { allocator_of(device).reset_accumulated_stats(); }

void DeviceAllocator::resetPeakStats(c10::DeviceIndex device) { allocator_of(device).reset_peak_stats(); }

std::pair<std::size_t, std::size_t> DeviceAllocator::getMemoryInfo(c10::DeviceIndex device) {
  const auto& allocator = allocator_of(device);
  return {allocator.free_bytes(), allocator.total_bytes()};
}

namespace {

[[maybe_unused]] const bool kDeviceAllocatorRegistered = [] {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &device_allocator());
  return true;
}();

}  // namespace
}  // namespace neuron::device
