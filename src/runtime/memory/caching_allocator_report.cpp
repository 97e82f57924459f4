// What the caching allocator tells about itself: statistics, snapshot, fragmentation.
#include <algorithm>
#include <mutex>

#include "runtime/memory/caching_allocator.h"

namespace neuron::runtime {

std::size_t CachingAllocator::free_bytes() const {
  const std::lock_guard guard(lock_);
  return total_bytes_ - static_cast<std::size_t>(quantities_.reserved_bytes.current());
}

std::size_t CachingAllocator::allocated_bytes() const {
  const std::lock_guard guard(lock_);
  return static_cast<std::size_t>(quantities_.allocated_bytes.current());
}

void CachingAllocator::count_out_of_memory() noexcept {
  const std::lock_guard guard(lock_);
  ++ooms_;
}

bool CachingAllocator::contains(const void* pointer) const {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard guard(lock_);
  auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) {
    return false;
  }
  const Segment& segment = *std::prev(after)->second;
  return address - reinterpret_cast<std::uintptr_t>(segment.base) < segment.size;
}

AllocatorStats CachingAllocator::stats() const {
  const std::lock_guard guard(lock_);
  AllocatorStats stats;
  stats.allocated_bytes = quantities_.allocated_bytes.read();
  stats.reserved_bytes = quantities_.reserved_bytes.read();
  stats.active_bytes = quantities_.active_bytes.read(quantities_.allocated_bytes, quantities_.pending_bytes);
  stats.requested_bytes = quantities_.requested_bytes.read();
  stats.inactive_split_bytes = quantities_.inactive_split_bytes.read();
  stats.allocations = quantities_.allocations.read();
  stats.segments = quantities_.segments.read();
  stats.active_blocks = quantities_.active_blocks.read(quantities_.allocations, quantities_.pending_blocks);
  stats.inactive_split_blocks = quantities_.inactive_split_blocks.read();
  stats.num_alloc_retries = alloc_retries_;
  stats.num_ooms = ooms_;
  stats.num_tensor_frees = stats.active_blocks.all.freed;
  stats.allocation_requests = stats.allocations.all.allocated + failed_requests_;
  return stats;
}

void CachingAllocator::reset_peak_stats() {
  const std::lock_guard guard(lock_);
  auto& q = quantities_;
  for (TrackedQuantity* quantity : {&q.allocated_bytes, &q.allocations, &q.requested_bytes, &q.inactive_split_bytes,
                                    &q.inactive_split_blocks, &q.reserved_bytes, &q.segments}) {
    quantity->reset_peak();
  }
  q.active_bytes.reset_peak(q.allocated_bytes, q.pending_bytes);
  q.active_blocks.reset_peak(q.allocations, q.pending_blocks);
}

void CachingAllocator::reset_accumulated_stats() {
  const std::lock_guard guard(lock_);
  auto& q = quantities_;
  for (TrackedQuantity* quantity : {&q.allocated_bytes, &q.allocations, &q.requested_bytes, &q.inactive_split_bytes,
                                    &q.inactive_split_blocks, &q.reserved_bytes, &q.segments}) {
    quantity->reset_accumulated();
  }
  q.active_bytes.reset_accumulated(q.allocated_bytes, q.pending_bytes);
  q.active_blocks.reset_accumulated(q.allocations, q.pending_blocks);
  failed_requests_ = 0;
  alloc_retries_ = 0;
  ooms_ = 0;
}

Snapshot CachingAllocator::snapshot() const {
  Snapshot snapshot;
  snapshot.device = device_;
  snapshot.total_bytes = total_bytes_;
  const std::lock_guard guard(lock_);
  snapshot.segments.reserve(segments_.size());
  for (const auto& [base, segment] : segments_) {
    SegmentInfo& info = snapshot.segments.emplace_back();
    info.address = base;
    info.size = segment->size;
    info.pool = segment->pool;
    // Blocks do not reach the edges of every segment (see kStagger); a reader expects entries that add up to it.
    const auto add_gap = [&](std::uintptr_t begin, std::uintptr_t end) {
      if (begin != end) {
        BlockInfo& gap = info.blocks.emplace_back();
        gap.address = begin;
        gap.size = end - begin;
        gap.state = BlockState::kGap;
        gap.stream = segment->first->stream;
      }
    };
    std::uintptr_t reached = base;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      add_gap(reached, reinterpret_cast<std::uintptr_t>(block->address));
      reached = reinterpret_cast<std::uintptr_t>(block->address) + block->slot;
      const bool owned = block->state == BlockState::kAllocated;
      const bool taken = owned || block->state == BlockState::kPendingFree;
      BlockInfo& entry = info.blocks.emplace_back();
      entry.address = reinterpret_cast<std::uintptr_t>(block->address);
      entry.size = block->slot;
      entry.allocated = taken ? block->usable : 0;
      entry.requested = taken ? block->requested : 0;
      entry.state = block->state;
      entry.stream = block->stream;
      info.allocated += entry.allocated;
      info.active += owned ? block->usable : 0;
      info.requested += owned ? block->requested : 0;
    }
    add_gap(reached, base + segment->size);
  }
  return snapshot;
}

Fragmentation CachingAllocator::fragmentation() const {
  Fragmentation result;
  const std::lock_guard guard(lock_);
  for (const auto& [base, segment] : segments_) {
    std::size_t run = 0;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const bool available = block->state == BlockState::kFree || block->state == BlockState::kQuick;
      run = available ? run + block->slot : 0;
      result.free_bytes += available ? block->slot : 0;
      result.largest_free_block = std::max(result.largest_free_block, run);
    }
  }
  return result;
}

}  // namespace neuron::runtime
