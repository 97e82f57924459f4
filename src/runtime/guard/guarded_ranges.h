// Device memory under the guard: every block on pages of its own, inaccessible unless a scope has opened it, between two pages that never
// are accessible; freed blocks stay inaccessible for a while.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/guard/operator_names.h"
#include "runtime/spin_lock.h"

namespace neuron::runtime::guard {

// One block's pages:
//
//   guard page | slack, data (ends as late as its alignment allows), slack | guard page
//
// The slack holds a pattern that is looked at when the pages are closed.
struct Range {
  std::byte* reserved = nullptr;  // the guard page in front
  std::byte* pages = nullptr;     // what can be opened
  std::size_t size = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  bool open = false;
  bool freed = false;
  OperatorName allocated_by{};
  OperatorName freed_by{};
  // In the list of what one thread, or the workers, opened; or in the quarantine.
  Range* next = nullptr;
  Range** link = nullptr;

  [[nodiscard]] std::byte* reserved_end() const noexcept;
};

// What a fault means.
enum class Fault : std::uint8_t {
  kForeign,  // not device memory
  kOpened,   // may be touched, and now can be: try again
  kStray,    // nobody runs a kernel here
  kOverrun,  // outside the block
  kFreed,    // the block was given back
  kNoPages,  // the host refuses to open the pages
  kUnclear,  // the bookkeeping was busy for too long
};

// The description of a fault's block, copied out of the bookkeeping.
struct FaultInfo {
  Fault kind = Fault::kForeign;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  OperatorName allocated_by{};
  OperatorName freed_by{};
};

// `size` bytes of whole pages that end with a block of `bytes` (> 0) bytes, aligned to 64, or null when the host refuses. Opened at once
// for a thread inside a scope. Throws std::bad_alloc.
Range* map_range(std::size_t bytes, std::size_t size, int device);
// Ends the block's life: its pages are given back, its addresses stay out of use for a while.
void release_range(Range* range) noexcept;

// Decides about a fault at `address` on this thread; opens the block's pages if the thread may touch them. Callable from a signal handler.
FaultInfo resolve_fault(const void* address) noexcept;

// Taken around fork().
SpinLock& ranges_lock() noexcept;
// In the child, with the lock held: what other threads had opened is closed.
void forget_other_threads() noexcept;

}  // namespace neuron::runtime::guard
