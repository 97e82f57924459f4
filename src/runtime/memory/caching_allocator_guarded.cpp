// The caching allocator under the memory guard (docs/guard.md): it charges the HBM and keeps statistics as ever, but every block is a
// segment of its own, on pages that only scopes open, and nothing is cached.
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/guard/guarded_ranges.h"
#include "runtime/memory/caching_allocator.h"

namespace neuron::runtime {

Block* CachingAllocator::allocate_guarded(std::unique_lock<SpinLock>& lock, const Request& request, std::int64_t stream) {
  const std::size_t remaining = total_bytes_ - static_cast<std::size_t>(quantities_.reserved_bytes.current());
  const std::size_t size = round_up(request.usable, kPage);
  if (size > remaining) {
    ++alloc_retries_;  // as without the guard, where the cache is given up first
    fail(lock, request.bytes, MapResult::kHbmExhausted);
  }
  descriptors_.reserve(1);
  auto segment = std::make_unique<Segment>();
  guard::Range* const range = guard::map_range(request.bytes, size, device_);
  if (range == nullptr) {
    fail(lock, request.bytes, MapResult::kHostRefused);
  }
  segment->owner = this;
  segment->base = range->pages;
  segment->size = size;
  segment->capacity = static_cast<std::size_t>(range->pages + range->size - range->data);
  segment->free_blocks = 1;
  segment->pool = request.pool;
  segment->guarded = range;
  Block* const block = descriptors_.take();
  block->address = range->data;
  block->slot = segment->capacity;
  block->segment = segment.get();
  block->device_index = static_cast<std::int16_t>(device_);
  segment->first = block;
  try {
    segments_.emplace(reinterpret_cast<std::uintptr_t>(range->pages), std::move(segment));
  } catch (...) {
    descriptors_.put(block);
    guard::release_range(range);
    throw;
  }
  ++segments_mapped_;
  quantities_.reserved_bytes.increase(request.pool, static_cast<std::int64_t>(size));
  quantities_.segments.increase(request.pool, 1);
  return commit(block, request.usable, request.bytes, stream);
}

void CachingAllocator::release_guarded(Block* block) noexcept {
  const Segment& segment = *block->segment;
  quantities_.reserved_bytes.decrease(segment.pool, static_cast<std::int64_t>(segment.size));
  quantities_.segments.decrease(segment.pool, 1);
  guard::release_range(segment.guarded);
  block->segment = nullptr;
  block->state = BlockState::kFree;
  descriptors_.put(block);
  segments_.erase(reinterpret_cast<std::uintptr_t>(segment.base));
}

}  // namespace neuron::runtime
