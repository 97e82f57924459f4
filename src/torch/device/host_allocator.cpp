// See host_allocator.h. The caching is torch's own (ATen/core/CachingHostAllocator.h); this file says where blocks come from and when they
// are free again.
#include "torch/device/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "torch/device/compat.h"

namespace neuron::device {
namespace {

// The address ranges of pinned blocks, including cached ones.
class PinnedRanges {
 public:
  void add(const void* start, std::size_t bytes) {
    const std::unique_lock lock(mutex_);
    ranges_.emplace(address(start), bytes);
  }
  std::size_t remove(const void* start) {
    const std::unique_lock lock(mutex_);
    const auto range = ranges_.find(address(start));
    const auto bytes = range->second;
    ranges_.erase(range);
    return bytes;
  }
  bool contains(const void* pointer) const {
    const std::shared_lock lock(mutex_);
    const auto after = ranges_.upper_bound(address(pointer));
    if (after == ranges_.begin()) {
      return false;
    }
    const auto& [start, bytes] = *std::prev(after);
    return address(pointer) - start < bytes;
  }

 private:
  static std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, std::size_t> ranges_;
};

// Leaked, like everything that tensors may outlive `main` with.
PinnedRanges& pinned_ranges() {
  static auto& ranges = *new PinnedRanges();
  return ranges;
}

using Block = at::HostBlock<c10::Stream>;

class PinnedMemory final : public at::CachingHostAllocatorImpl<c10::Stream, c10::Event, Block> {
 public:
  void copy_data(void* destination, const void* source, std::size_t bytes) const override { std::memcpy(destination, source, bytes); }

 private:
  void allocate_host_memory(std::size_t bytes, void** memory) override {
    // Pages of their own, as a driver pins whole pages.
    auto* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
      compat::throw_error<c10::Error>(
          c10::str("cannot allocate ", bytes,
                   " bytes of pinned host memory: the host is out of memory. Use fewer or smaller batches, or pin_memory=False."));
    }
    pinned_ranges().add(pages, bytes);
    *memory = pages;
  }
  void free_block(Block* block) override { munmap(block->ptr_, pinned_ranges().remove(block->ptr_)); }

  void record_stream(std::optional<std::vector<c10::Event>>& events, c10::Stream stream) override {
    c10::Event event(stream.device_type());
    event.record(stream);
    if (events.has_value()) {
      events->push_back(std::move(event));
    }
  }
  bool query_event(c10::Event& event) override { return event.query(); }
  c10::Stream get_current_stream() const override {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
    return guard.getStream(guard.getDevice());
  }
  bool stream_is_capturing(c10::Stream /*stream*/) const override { return false; }
};

void free_pinned_block(void* context);

using PinnedHostAllocator = at::CachingHostAllocatorInterface<PinnedMemory, &free_pinned_block>;

// Leaked: pinned tensors may live until the process ends.
PinnedHostAllocator& allocator() {
  static auto& instance = *new PinnedHostAllocator();
  return instance;
}

void free_pinned_block(void* context) { allocator().free(context); }

[[maybe_unused]] const bool kHostAllocatorRegistered = [] {
  at::setHostAllocator(c10::DeviceType::PrivateUse1, &allocator());
  return true;
}();

}  // namespace

c10::Allocator& pinned_host_allocator() { return allocator(); }

bool is_pinned_host_memory(const void* address) noexcept { return pinned_ranges().contains(address); }

}  // namespace neuron::device
