// Allocation and freeing. Segments, splitting and merging are in caching_allocator_segments.cpp.
#include "runtime/memory/caching_allocator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "runtime/error.h"
#include "runtime/guard/access_scope.h"
#include "runtime/guard/guarded_ranges.h"
#include "runtime/memory/out_of_memory.h"

namespace neuron::runtime {

// Streams other than its own that use a block.
struct StreamUses {
  std::vector<std::int64_t> streams;
};

namespace {

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
    if (segment->guarded != nullptr) {
      guard::release_range(segment->guarded);
    } else {
      source_.unmap(segment->base, segment->size);
    }
  }
}

Block* CachingAllocator::allocate(std::size_t bytes, std::int64_t stream) {
  if (bytes == 0) {
    return nullptr;
  }
  std::unique_lock lock(lock_);
  if (pending_ != nullptr) [[unlikely]] {
    drain_pending();
  }
  if (bytes < kSmallLimit) {
    const std::size_t usable = size_class::round_to_class(bytes);
    Block*& head = quick_[size_class::floor_index(usable)];
    if (Block* const block = head; block != nullptr) [[likely]] {
      head = block->list_next;
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
  if (guard::active()) [[unlikely]] {
    return allocate_guarded(lock, request, stream);
  }
  constexpr int kAttempts = 2;
  MapResult result = MapResult::kMapped;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    descriptors_.reserve(2);  // a split or a new segment must not fail half-way
    if (Block* const block = take_cached(request, request.pool, stream)) {
      return block;
    }
    result = map_segment(request);
    if (result == MapResult::kMapped) {
      return take_cached(request, request.pool, stream);
    }
    if (attempt < kAttempts) {
      ++alloc_retries_;
      lock.unlock();
      empty_cache();
      lock.lock();
    }
  }
  if (Block* const block = borrow(request, stream)) {
    return block;
  }
  fail(lock, bytes, result);
}

void CachingAllocator::fail(std::unique_lock<SpinLock>& lock, std::size_t bytes, MapResult reason) {
  ++failed_requests_;
  if (reason == MapResult::kHbmExhausted) {
    ++ooms_;
  }
  lock.unlock();
  if (reason == MapResult::kHostRefused) {
    throw Error(ErrorCode::kOutOfHostMemory, out_of_host_memory_text(device_, bytes, stats()));
  }
  throw OutOfMemoryError(out_of_device_memory_text(device_, bytes, total_bytes_, stats()));
}

Block* CachingAllocator::commit(Block* block, std::size_t usable, std::size_t bytes, std::int64_t stream) noexcept {
  const PoolKind pool = pool_of(bytes);
  block->state = BlockState::kAllocated;
  block->usable = usable;
  block->requested = bytes;
  block->request_pool = pool;
  block->stream = stream;
  occupy(*block->segment, block->slot);
  quantities_.allocated_bytes.increase(pool, static_cast<std::int64_t>(usable));
  quantities_.allocations.increase(pool, 1);
  quantities_.requested_bytes.increase(pool, static_cast<std::int64_t>(bytes));
  quantities_.active_bytes.observe(pool, quantities_.allocated_bytes, quantities_.pending_bytes);
  quantities_.active_blocks.observe(pool, quantities_.allocations, quantities_.pending_blocks);
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
  quantities_.requested_bytes.decrease(block->request_pool, static_cast<std::int64_t>(block->requested));
  if (block->uses != nullptr && !uses_finished(*block)) [[unlikely]] {
    quantities_.pending_bytes.increase(block->request_pool, static_cast<std::int64_t>(block->usable));
    quantities_.pending_blocks.increase(block->request_pool, 1);
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
  const std::size_t slot = block->slot;
  if (segment.guarded != nullptr) [[unlikely]] {
    vacate(segment, slot);
    release_guarded(block);
    return;
  }
  if (segment.pool == PoolKind::kSmall) {
    Block*& head = quick_[block->quick_class];
    block->state = BlockState::kQuick;
    block->list_next = head;
    head = block;
  } else {
    bins_of(segment).insert(merge_neighbours(block));
  }
  vacate(segment, slot);
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
      quantities_.pending_bytes.decrease(block->request_pool, static_cast<std::int64_t>(block->usable));
      quantities_.pending_blocks.decrease(block->request_pool, 1);
      make_available(block);
    } else {
      block->list_next = pending_;
      pending_ = block;
    }
    block = following;
  }
}

}  // namespace neuron::runtime
