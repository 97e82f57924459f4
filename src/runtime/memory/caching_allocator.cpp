// Allocation, freeing, splitting and merging.
#include "runtime/memory/caching_allocator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "runtime/error.h"
#include "runtime/memory/out_of_memory.h"

namespace neuron::runtime {

// Streams other than its own that use a block.
struct StreamUses {
  std::vector<std::int64_t> streams;
};

struct CachingAllocator::Request {
  std::size_t bytes;
  std::size_t usable;
  PoolKind pool;
};

namespace {

constexpr std::size_t kSmallSegment = 8 * kMiB;
constexpr std::size_t kMediumSegment = 32 * kMiB;
constexpr std::size_t kTightSegment = 256 * kKiB;  // granularity when a whole segment does not fit any more

std::size_t pool_index(PoolKind pool) noexcept { return static_cast<std::size_t>(pool); }

// Remainders below this stay part of the block: nothing could use them.
std::size_t smallest_remainder(PoolKind pool) noexcept { return pool == PoolKind::kSmall ? kMinBlock : kSmallLimit; }

[[noreturn]] void abort_on_bad_free() noexcept {
  std::fputs("softneuron: a device memory block was freed twice\n", stderr);
  std::abort();
}

}  // namespace

CachingAllocator::CachingAllocator(int device, std::uint64_t total_bytes, StreamQuery stream_query, SegmentSource& source)
    : device_(device),
      // Statistics are signed 64-bit numbers; no device comes near.
      total_bytes_(static_cast<std::size_t>(std::min<std::uint64_t>(total_bytes, std::uint64_t{1} << 46))),
      stream_query_(std::move(stream_query)),
      source_(source) {}

CachingAllocator::~CachingAllocator() {
  for (const auto& [base, segment] : segments_) {
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      delete block->uses;
    }
    source_.unmap(segment->base, segment->size);
  }
}

Block* CachingAllocator::allocate(std::size_t bytes, std::int64_t stream) {
  if (bytes == 0) {
    return nullptr;
  }
  std::unique_lock lock(lock_);
  ++allocation_requests_;
  if (pending_ != nullptr) [[unlikely]] {
    drain_pending();
  }
  if (bytes < kSmallLimit) {
    const std::size_t usable = size_class::round_to_class(bytes);
    Block*& head = quick_[size_class::floor_index(usable)];
    if (Block* const block = head; block != nullptr) [[likely]] {
      head = block->list_next;
      --quick_blocks_;
      return commit(block, usable, bytes, stream);
    }
  }
  return allocate_slow(lock, bytes, stream);
}

Block* CachingAllocator::allocate_slow(std::unique_lock<SpinLock>& lock, std::size_t bytes, std::int64_t stream) {
  if (bytes > total_bytes_) {
    fail(lock, bytes, MapResult::kHbmExhausted);  // no use in giving up the cache for it
  }
  const Request request{bytes, usable_size(bytes), pool_of(bytes)};
  constexpr int kAttempts = 2;
  MapResult result = MapResult::kMapped;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    descriptors_.reserve(2);  // a split or a new segment must not fail half-way
    if (Block* const block = take_cached(request, request.pool)) {
      return commit(block, request.usable, bytes, stream);
    }
    result = map_segment(request);
    if (result == MapResult::kMapped) {
      return commit(take_cached(request, request.pool), request.usable, bytes, stream);
    }
    if (attempt < kAttempts) {
      ++alloc_retries_;
      lock.unlock();
      empty_cache();
      lock.lock();
    }
  }
  if (Block* const block = borrow(request)) {
    return commit(block, request.usable, bytes, stream);
  }
  fail(lock, bytes, result);
}

void CachingAllocator::fail(std::unique_lock<SpinLock>& lock, std::size_t bytes, MapResult reason) {
  if (reason == MapResult::kHbmExhausted) {
    ++ooms_;
  }
  lock.unlock();
  if (reason == MapResult::kHostRefused) {
    throw Error(ErrorCode::kOutOfHostMemory, out_of_host_memory_text(device_, bytes, stats()));
  }
  throw OutOfMemoryError(out_of_device_memory_text(device_, bytes, total_bytes_, stats()));
}

Block* CachingAllocator::take_cached(const Request& request, PoolKind pool) noexcept {
  const std::size_t slot = slot_size(request.usable, pool);
  BlockBins& bins = bins_[pool_index(pool)];
  Block* block = bins.take(slot);
  if (block == nullptr && pool == PoolKind::kSmall && quick_blocks_ != 0) {
    merge_quick_lists();
    block = bins.take(slot);
  }
  if (block == nullptr || block->slot - slot < smallest_remainder(pool)) {
    return block;
  }
  Block* const rest = descriptors_.take();
  rest->address = block->address + slot;
  rest->slot = block->slot - slot;
  rest->segment = block->segment;
  rest->device_index = block->device_index;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) {
    rest->next->previous = rest;
  }
  block->next = rest;
  block->slot = slot;
  ++block->segment->free_blocks;
  bins.insert(rest);
  return block;
}

Block* CachingAllocator::borrow(const Request& request) noexcept {
  for (std::size_t pool = pool_index(request.pool) + 1; pool < kPools; ++pool) {
    if (Block* const block = take_cached(request, static_cast<PoolKind>(pool))) {
      return block;
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

Block* CachingAllocator::commit(Block* block, std::size_t usable, std::size_t bytes, std::int64_t stream) noexcept {
  const PoolKind pool = pool_of(bytes);
  block->state = BlockState::kAllocated;
  block->usable = usable;
  block->requested = bytes;
  block->request_pool = pool;
  block->stream = stream;
  Segment& segment = *block->segment;
  segment.used += block->slot;
  ++segment.live_blocks;
  --segment.free_blocks;
  update_inactive(segment);
  quantities_.allocated_bytes.increase(pool, static_cast<std::int64_t>(usable));
  quantities_.active_bytes.increase(pool, static_cast<std::int64_t>(usable));
  quantities_.requested_bytes.increase(pool, static_cast<std::int64_t>(bytes));
  quantities_.allocations.increase(pool, 1);
  quantities_.active_blocks.increase(pool, 1);
  return block;
}

void CachingAllocator::free(Block* block) noexcept {
  if (block == nullptr) {
    return;
  }
  if (block->segment == nullptr) [[unlikely]] {
    abort_on_bad_free();  // merged into a neighbour since
  }
  CachingAllocator& owner = *block->segment->owner;
  const std::lock_guard guard(owner.lock_);
  owner.give_back(block);
}

void CachingAllocator::give_back(Block* block) noexcept {
  if (block->state != BlockState::kAllocated) [[unlikely]] {
    abort_on_bad_free();
  }
  ++frees_;
  const PoolKind pool = block->request_pool;
  quantities_.active_bytes.decrease(pool, static_cast<std::int64_t>(block->usable));
  quantities_.requested_bytes.decrease(pool, static_cast<std::int64_t>(block->requested));
  quantities_.active_blocks.decrease(pool, 1);
  if (block->uses != nullptr && !uses_finished(*block)) [[unlikely]] {
    block->state = BlockState::kPendingFree;
    block->list_next = pending_;
    pending_ = block;
    return;
  }
  make_available(block);
}

void CachingAllocator::make_available(Block* block) noexcept {
  if (block->uses != nullptr) [[unlikely]] {
    delete block->uses;
    block->uses = nullptr;
  }
  const PoolKind pool = block->request_pool;
  quantities_.allocated_bytes.decrease(pool, static_cast<std::int64_t>(block->usable));
  quantities_.allocations.decrease(pool, 1);
  Segment& segment = *block->segment;
  segment.used -= block->slot;
  --segment.live_blocks;
  ++segment.free_blocks;
  if (segment.pool == PoolKind::kSmall) {
    Block*& head = quick_[size_class::floor_index(block->slot)];
    block->state = BlockState::kQuick;
    block->list_next = head;
    head = block;
    ++quick_blocks_;
  } else {
    merge_and_bin(block);
  }
  update_inactive(segment);
}

void CachingAllocator::merge_and_bin(Block* block) noexcept {
  Segment& segment = *block->segment;
  BlockBins& bins = bins_[pool_index(segment.pool)];
  // Makes `left` cover `right` as well; neither is in a bin.
  const auto absorb = [&](Block* left, Block* right) {
    left->slot += right->slot;
    left->next = right->next;
    if (left->next != nullptr) {
      left->next->previous = left;
    }
    --segment.free_blocks;
    right->segment = nullptr;
    right->state = BlockState::kFree;
    descriptors_.put(right);
  };
  if (Block* const next = block->next; next != nullptr && next->state == BlockState::kFree) {
    bins.remove(next);
    absorb(block, next);
  }
  if (Block* const previous = block->previous; previous != nullptr && previous->state == BlockState::kFree) {
    bins.remove(previous);
    absorb(previous, block);
    block = previous;
  }
  bins.insert(block);
}

void CachingAllocator::merge_quick_lists() noexcept {
  for (Block*& head : quick_) {
    while (head != nullptr) {
      Block* const block = std::exchange(head, head->list_next);
      Segment& segment = *block->segment;
      merge_and_bin(block);
      update_inactive(segment);
    }
  }
  quick_blocks_ = 0;
}

void CachingAllocator::record_stream(Block* block, std::int64_t stream) {
  if (block == nullptr) {
    return;
  }
  static_cast<void>(stream_query_(Stream{device_, stream}));  // refuses a stream that does not exist now rather than in free()
  const std::lock_guard guard(lock_);
  if (block->stream == stream) {
    return;
  }
  if (block->uses == nullptr) {
    block->uses = new StreamUses;
  }
  auto& streams = block->uses->streams;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
}

bool CachingAllocator::uses_finished(const Block& block) const {
  return std::all_of(block.uses->streams.begin(), block.uses->streams.end(),
                     [this](std::int64_t stream) { return stream_query_(Stream{device_, stream}); });
}

void CachingAllocator::drain_pending() noexcept {
  Block* block = std::exchange(pending_, nullptr);
  while (block != nullptr) {
    Block* const following = block->list_next;
    if (uses_finished(*block)) {
      make_available(block);
    } else {
      block->list_next = pending_;
      pending_ = block;
    }
    block = following;
  }
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

void CachingAllocator::update_inactive(Segment& segment) noexcept {
  const bool live = segment.live_blocks != 0;
  const std::int64_t bytes = live ? static_cast<std::int64_t>(segment.capacity - segment.used) : 0;
  const std::int64_t blocks = live ? segment.free_blocks : 0;
  quantities_.inactive_split_bytes.change(segment.pool, bytes - segment.inactive_bytes);
  quantities_.inactive_split_blocks.change(segment.pool, blocks - segment.inactive_blocks);
  segment.inactive_bytes = bytes;
  segment.inactive_blocks = blocks;
}

}  // namespace neuron::runtime
