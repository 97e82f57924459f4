// A slice of a segment: what the allocator hands out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/memory/size_class.h"

namespace neuron::runtime {

struct Segment;
struct StreamUses;

enum class BlockState : std::uint8_t {
  kFree,         // in a bin, merged with its free neighbours
  kQuick,        // free, in a list of its exact class, not merged yet
  kAllocated,    // owned by a caller
  kPendingFree,  // given back, but a recorded stream may still use it
  kGap,          // in snapshots only: bytes at the edge of a segment that belong to no block
};

// Users call the three accessors only; the fields belong to the allocator and are guarded by its lock.
struct alignas(64) Block {
  [[nodiscard]] void* data() const noexcept { return address; }
  // Usable bytes: the request rounded up.
  [[nodiscard]] std::size_t size() const noexcept { return usable; }
  [[nodiscard]] int device() const noexcept { return device_index; }

  // First cache line: all that a cached allocation touches.
  std::byte* address = nullptr;
  std::size_t usable = 0;     // bytes the current owner may use
  std::size_t slot = 0;       // bytes up to the next block of the segment
  std::size_t requested = 0;  // bytes asked for
  Segment* segment = nullptr;
  Block* list_next = nullptr;  // in its bin, quick list, pending list, or the list of unused descriptors
  StreamUses* uses = nullptr;  // streams recorded on it, usually none
  std::int16_t device_index = 0;
  BlockState state = BlockState::kFree;
  PoolKind request_pool = PoolKind::kSmall;  // pool of the request, which statistics go by; may differ from the segment's
  std::uint8_t quick_class = 0;              // small segments: the quick list that fits the slot

  // Second cache line.
  Block* list_previous = nullptr;  // bins only
  Block* previous = nullptr;       // neighbours by address in the segment
  Block* next = nullptr;
  std::int64_t stream = 0;  // stream it was allocated for
};

}  // namespace neuron::runtime
