// A mapped range of memory that blocks are cut from.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/memory/block.h"

namespace neuron::runtime {

class CachingAllocator;
namespace guard {
struct Range;
}

// Guarded by the owner's lock.
struct Segment {
  CachingAllocator* owner = nullptr;
  std::byte* base = nullptr;
  std::size_t size = 0;      // mapped bytes, charged against the HBM
  std::size_t capacity = 0;  // bytes that blocks divide among themselves
  std::size_t used = 0;      // slots of blocks that are allocated or pending
  std::int64_t live_blocks = 0;
  std::int64_t free_blocks = 0;
  PoolKind pool = PoolKind::kSmall;
  Block* first = nullptr;
  guard::Range* guarded = nullptr;  // under the memory guard: the pages of its one block
};

}  // namespace neuron::runtime
