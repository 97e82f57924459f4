// Caching segment allocator of one logical core. Segments come from the host and are charged against the core's HBM; blocks are slices of
// segments, split and merged as needed; freed blocks stay cached until empty_cache() or until memory runs short.
//
// Blocks of the small pool are freed into a list of their exact class without merging (a "quick" list), which makes the next allocation of
// that class a pop. They are merged before a new segment would be mapped, so this costs no memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/memory/block.h"
#include "runtime/memory/block_bins.h"
#include "runtime/memory/block_descriptors.h"
#include "runtime/memory/segment.h"
#include "runtime/memory/segment_source.h"
#include "runtime/memory/snapshot.h"
#include "runtime/memory/stats.h"
#include "runtime/spin_lock.h"
#include "runtime/stream.h"

namespace neuron::runtime {

// Thread-safe. Blocks may be freed by any thread.
class CachingAllocator {
 public:
  // Whether the work submitted to a stream so far has finished. Throws for a stream that does not exist.
  using StreamQuery = std::function<bool(Stream)>;

  CachingAllocator(int device, std::uint64_t total_bytes, StreamQuery stream_query,
                   SegmentSource& source = SegmentSource::anonymous_memory());
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  CachingAllocator(CachingAllocator&&) = delete;
  CachingAllocator& operator=(CachingAllocator&&) = delete;
  ~CachingAllocator();

  // At least `bytes` bytes, aligned to 256 (small) or 512; nullptr for 0 bytes. Throws OutOfMemoryError when the HBM is exhausted even
  // after releasing the cache, Error(kOutOfHostMemory) when the host refuses to map memory.
  Block* allocate(std::size_t bytes, std::int64_t stream = 0);
  // nullptr is ignored. Freeing a block twice ends the process: it would hand the same memory to two owners.
  static void free(Block* block) noexcept;
  // The block is not reused before the work submitted to `stream` by the time it is freed has finished. A block's own stream needs no
  // record: its work has finished when the call that submitted it returns.
  void record_stream(Block* block, std::int64_t stream);

  // Returns segments without any block in use to the host; gives the number of bytes released.
  std::size_t empty_cache();

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] std::size_t total_bytes() const noexcept { return total_bytes_; }
  // HBM not reserved by segments.
  [[nodiscard]] std::size_t free_bytes() const;
  // Of blocks that cannot be given to somebody else.
  [[nodiscard]] std::size_t allocated_bytes() const;
  // For a caller that throws out of memory without having asked for it: the statistics count it as any other.
  void count_out_of_memory() noexcept;
  [[nodiscard]] bool contains(const void* pointer) const;

  [[nodiscard]] AllocatorStats stats() const;
  void reset_peak_stats();
  void reset_accumulated_stats();
  [[nodiscard]] Snapshot snapshot() const;
  [[nodiscard]] Fragmentation fragmentation() const;

  // Taken around fork() so that a child never inherits the allocator half-way through a change.
  [[nodiscard]] SpinLock& lock() const noexcept { return lock_; }

 private:
  struct Request {
    std::size_t bytes;
    std::size_t usable;
    PoolKind pool;
  };
  struct Quantities {
    TrackedQuantity allocated_bytes;
    TrackedQuantity allocations;
    TrackedQuantity requested_bytes;
    TrackedQuantity inactive_split_bytes;
    TrackedQuantity inactive_split_blocks;
    ActiveQuantity active_bytes;
    ActiveQuantity active_blocks;
    TrackedQuantity pending_bytes;  // given back, but a recorded stream still uses them
    TrackedQuantity pending_blocks;
    TrackedQuantity reserved_bytes;
    TrackedQuantity segments;
  };
  enum class MapResult { kMapped, kHbmExhausted, kHostRefused };

  // All functions below expect the lock to be held, except where they take it as an argument.
  Block* allocate_slow(std::unique_lock<SpinLock>& lock, std::size_t bytes, std::int64_t stream);
  [[noreturn]] void fail(std::unique_lock<SpinLock>& lock, std::size_t bytes, MapResult reason);
  // From the bins of `pool`, split to size; nullptr when nothing fits.
  Block* take_cached(const Request& request, PoolKind pool, std::int64_t stream) noexcept;
  // Under the memory guard: a segment of its own for each block, and no cache.
  Block* allocate_guarded(std::unique_lock<SpinLock>& lock, const Request& request, std::int64_t stream);
  void release_guarded(Block* block) noexcept;
  // Last resort: free pieces of segments that hold blocks of another pool (never of the small one, whose segments are too fine-grained).
  Block* borrow(const Request& request, std::int64_t stream) noexcept;
  MapResult map_segment(const Request& request);
  // Makes a free block, which is in no list, the caller's.
  Block* commit(Block* block, std::size_t usable, std::size_t bytes, std::int64_t stream) noexcept;
  void give_back(Block* block) noexcept;
  void make_available(Block* block) noexcept;
  // Cuts the end of a block off as a free block.
  void split(Block* block, std::size_t slot) noexcept;
  // Merges a block, which is in no list, with its free neighbours; gives the block that covers them.
  Block* merge_neighbours(Block* block) noexcept;
  [[nodiscard]] BlockBins& bins_of(const Segment& segment) noexcept { return bins_[static_cast<std::size_t>(segment.pool)]; }
  void merge_quick_lists() noexcept;
  bool uses_finished(const Block& block) const;
  void drain_pending() noexcept;
  // Account for bytes of a segment that become used or free. The free bytes of a segment count as inactive while another block is live.
  void occupy(Segment& segment, std::size_t slot) noexcept;
  void vacate(Segment& segment, std::size_t slot) noexcept;

  mutable SpinLock lock_;
  int device_;
  std::size_t total_bytes_;
  Block* pending_ = nullptr;
  std::array<Block*, size_class::kSmallCount> quick_{};
  Quantities quantities_;
  std::int64_t failed_requests_ = 0;
  std::int64_t alloc_retries_ = 0;
  std::int64_t ooms_ = 0;
  std::size_t segments_mapped_ = 0;
  std::array<BlockBins, kPools> bins_;
  BlockDescriptors descriptors_;
  std::map<std::uintptr_t, std::unique_ptr<Segment>> segments_;  // by base address
  StreamQuery stream_query_;
  SegmentSource& source_;
};

}  // namespace neuron::runtime
