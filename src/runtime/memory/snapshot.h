// A picture of an allocator's segments and blocks at one moment, for memory visualisers and for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/memory/block.h"

namespace neuron::runtime {

struct BlockInfo {
  std::uintptr_t address = 0;
  std::size_t size = 0;       // bytes up to the next block
  std::size_t allocated = 0;  // accounted bytes: the request rounded up; 0 for a free block
  std::size_t requested = 0;  // 0 for a free block
  BlockState state = BlockState::kFree;
  std::int64_t stream = 0;
};

struct SegmentInfo {
  std::uintptr_t address = 0;
  std::size_t size = 0;  // reserved bytes
  PoolKind pool = PoolKind::kSmall;
  std::size_t allocated = 0;  // sums over the blocks
  std::size_t active = 0;
  std::size_t requested = 0;
  std::vector<BlockInfo> blocks;  // by address, without gaps; together they fill the segment
};

struct Snapshot {
  int device = 0;
  std::size_t total_bytes = 0;        // HBM of the core
  std::vector<SegmentInfo> segments;  // by address
};

// How scattered the free memory inside segments is: 1 - largest_free_block / free_bytes, 0 when nothing is free. Neighbouring free blocks
// count as one. 0 means one contiguous piece; values near 1 mean that many small pieces remain.
struct Fragmentation {
  std::size_t free_bytes = 0;
  std::size_t largest_free_block = 0;
  [[nodiscard]] double ratio() const noexcept {
    return free_bytes == 0 ? 0.0 : 1.0 - static_cast<double>(largest_free_block) / static_cast<double>(free_bytes);
  }
};

}  // namespace neuron::runtime
