// Segments of the caching allocator: mapping and releasing them, cutting blocks from them and merging blocks again.
#include <cstdint>
#include <mutex>
#include <utility>

#include "runtime/memory/caching_allocator.h"

namespace neuron::runtime {
namespace {

constexpr std::size_t kSmallSegment = 8 * kMiB;
constexpr std::size_t kMediumSegment = 32 * kMiB;
constexpr std::size_t kTightSegment = 256 * kKiB;  // granularity when a whole segment does not fit any more

std::size_t pool_index(PoolKind pool) noexcept { return static_cast<std::size_t>(pool); }

// Remainders below this stay part of the block: nothing could use them.
std::size_t smallest_remainder(PoolKind pool) noexcept { return pool == PoolKind::kSmall ? kMinBlock : kSmallLimit; }

}  // namespace

Block* CachingAllocator::take_cached(const Request& request, PoolKind pool, std::int64_t stream) noexcept {
  const std::size_t slot = slot_size(request.usable, pool);
  BlockBins& bins = bins_[pool_index(pool)];
  Block* block = bins.take(slot);
  if (block == nullptr && pool == PoolKind::kSmall) {
    merge_quick_lists();
    block = bins.take(slot);
  }
  if (block == nullptr) {
    return nullptr;
  }
  commit(block, request.usable, request.bytes, stream);
  if (block->slot - slot >= smallest_remainder(pool)) {
    split(block, slot);
  }
  if (pool == PoolKind::kSmall) {
    block->quick_class = static_cast<std::uint8_t>(size_class::floor_index(block->slot));
  }
  return block;
}

void CachingAllocator::split(Block* block, std::size_t slot) noexcept {
  Segment& segment = *block->segment;
  Block* const rest = descriptors_.take();
  rest->address = block->address + slot;
  rest->slot = block->slot - slot;
  rest->segment = &segment;
  rest->device_index = block->device_index;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) {
    rest->next->previous = rest;
  }
  block->next = rest;
  block->slot = slot;
  bins_of(segment).insert(rest);
  segment.used -= rest->slot;
  ++segment.free_blocks;
  quantities_.inactive_split_bytes.increase(segment.pool, static_cast<std::int64_t>(rest->slot));
  quantities_.inactive_split_blocks.increase(segment.pool, 1);
}

Block* CachingAllocator::borrow(const Request& request, std::int64_t stream) noexcept {
  for (const PoolKind pool : {PoolKind::kMedium, PoolKind::kHuge}) {
    if (pool != request.pool) {
      if (Block* const block = take_cached(request, pool, stream)) {
        return block;
      }
    }
  }
  return nullptr;
}

CachingAllocator::MapResult CachingAllocator::map_segment(const Request& request) {
  const bool small = request.pool == PoolKind::kSmall;
  const bool huge = request.pool == PoolKind::kHuge;
  // Large blocks of different segments start at different offsets modulo 4096, as neighbours do (see kStagger).
  const std::size_t lead = small ? 0 : segments_mapped_ % (kPage / kStagger) * kStagger;
  const std::size_t needed = round_up(lead + slot_size(request.usable, request.pool), kPage);
  const std::size_t wanted = huge ? needed : small ? kSmallSegment : kMediumSegment;
  const std::size_t remaining = total_bytes_ - static_cast<std::size_t>(quantities_.reserved_bytes.current());
  std::size_t size = 0;
  for (const std::size_t candidate : {wanted, round_up(needed, kTightSegment), needed}) {
    if (candidate <= remaining) {
      size = candidate;
      break;
    }
  }
  if (size == 0) {
    return MapResult::kHbmExhausted;
  }
  auto segment = std::make_unique<Segment>();
  const std::size_t huge_prefix = small ? 0 : huge ? lead + request.bytes : size;
  auto* const base = static_cast<std::byte*>(source_.map(size, huge_prefix));
  if (base == nullptr) {
    return MapResult::kHostRefused;
  }
  segment->owner = this;
  segment->base = base;
  segment->size = size;
  segment->capacity = (size - lead) / kLargeAlignment * kLargeAlignment;
  segment->free_blocks = 1;
  segment->pool = request.pool;

  Block* const block = descriptors_.take();
  block->address = base + lead;
  block->slot = segment->capacity;
  block->segment = segment.get();
  block->device_index = static_cast<std::int16_t>(device_);
  segment->first = block;
  try {
    segments_.emplace(reinterpret_cast<std::uintptr_t>(base), std::move(segment));
  } catch (...) {
    descriptors_.put(block);
    source_.unmap(base, size);
    throw;
  }
  ++segments_mapped_;
  quantities_.reserved_bytes.increase(request.pool, static_cast<std::int64_t>(size));
  quantities_.segments.increase(request.pool, 1);
  bins_[pool_index(request.pool)].insert(block);
  return MapResult::kMapped;
}

Block* CachingAllocator::merge_neighbours(Block* block) noexcept {
  Segment& segment = *block->segment;
  BlockBins& bins = bins_of(segment);
  // Makes `left` cover `right` as well; neither is in a list any more.
  const auto absorb = [&](Block* left, Block* right) {
    left->slot += right->slot;
    left->next = right->next;
    if (left->next != nullptr) {
      left->next->previous = left;
    }
    right->segment = nullptr;
    right->state = BlockState::kFree;
    descriptors_.put(right);
    --segment.free_blocks;
    if (segment.live_blocks != 0) {
      quantities_.inactive_split_blocks.decrease(segment.pool, 1);
    }
  };
  if (Block* const next = block->next; next != nullptr && next->state == BlockState::kFree) {
    bins.remove(next);
    absorb(block, next);
  }
  if (Block* const previous = block->previous; previous != nullptr && previous->state == BlockState::kFree) {
    bins.remove(previous);
    absorb(previous, block);
    return previous;
  }
  return block;
}

void CachingAllocator::merge_quick_lists() noexcept {
  for (Block*& head : quick_) {
    while (head != nullptr) {
      Block* const block = std::exchange(head, head->list_next);
      bins_of(*block->segment).insert(merge_neighbours(block));
    }
  }
}

void CachingAllocator::occupy(Segment& segment, std::size_t slot) noexcept {
  if (segment.live_blocks != 0) [[likely]] {
    quantities_.inactive_split_bytes.decrease(segment.pool, static_cast<std::int64_t>(slot));
    quantities_.inactive_split_blocks.decrease(segment.pool, 1);
  } else if (segment.free_blocks > 1 || slot != segment.capacity) {
    quantities_.inactive_split_bytes.increase(segment.pool, static_cast<std::int64_t>(segment.capacity - slot));
    quantities_.inactive_split_blocks.increase(segment.pool, segment.free_blocks - 1);
  }
  segment.used += slot;
  ++segment.live_blocks;
  --segment.free_blocks;
}

void CachingAllocator::vacate(Segment& segment, std::size_t slot) noexcept {
  --segment.live_blocks;
  if (segment.live_blocks != 0) [[likely]] {
    quantities_.inactive_split_bytes.increase(segment.pool, static_cast<std::int64_t>(slot));
    quantities_.inactive_split_blocks.increase(segment.pool, 1);
  } else {
    quantities_.inactive_split_bytes.decrease(segment.pool, static_cast<std::int64_t>(segment.capacity - segment.used));
    quantities_.inactive_split_blocks.decrease(segment.pool, segment.free_blocks);
  }
  segment.used -= slot;
  ++segment.free_blocks;
}

std::size_t CachingAllocator::empty_cache() {
  std::vector<std::unique_ptr<Segment>> released;
  {
    const std::lock_guard guard(lock_);
    drain_pending();
    merge_quick_lists();
    released.reserve(segments_.size());
    for (auto entry = segments_.begin(); entry != segments_.end();) {
      Segment& segment = *entry->second;
      if (segment.live_blocks != 0) {
        ++entry;
        continue;
      }
      Block* const block = segment.first;  // everything is free, hence merged into one
      bins_[pool_index(segment.pool)].remove(block);
      block->segment = nullptr;
      descriptors_.put(block);
      quantities_.reserved_bytes.decrease(segment.pool, static_cast<std::int64_t>(segment.size));
      quantities_.segments.decrease(segment.pool, 1);
      released.push_back(std::move(entry->second));
      entry = segments_.erase(entry);
    }
  }
  // Unmapping gigabytes takes a while: not under the lock.
  std::size_t bytes = 0;
  for (const auto& segment : released) {
    source_.unmap(segment->base, segment->size);
    bytes += segment->size;
  }
  return bytes;
}

}  // namespace neuron::runtime
