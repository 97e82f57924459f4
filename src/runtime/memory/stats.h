// Allocator statistics: exact figures, per pool, with peaks and running totals.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/memory/size_class.h"

namespace neuron::runtime {

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  // sum of all increases since the accumulated statistics were reset
  std::int64_t freed = 0;      // sum of all decreases
  friend bool operator==(const Stat&, const Stat&) = default;
};

struct StatGroup {
  Stat all;
  Stat small;  // requests below 1 MiB
  Stat large;
  friend bool operator==(const StatGroup&, const StatGroup&) = default;
};

// reserved >= allocated >= active at all times. allocated: blocks that cannot be given to somebody else (owned by a caller, or given back
// while a recorded stream still uses them); active: blocks owned by a caller; requested: what those callers asked for, before rounding.
// inactive_split: free bytes in segments that also hold a block in use, so empty_cache() cannot release them.
struct AllocatorStats {
  StatGroup allocated_bytes;
  StatGroup reserved_bytes;
  StatGroup active_bytes;
  StatGroup requested_bytes;
  StatGroup inactive_split_bytes;
  StatGroup allocations;
  StatGroup segments;
  StatGroup active_blocks;
  StatGroup inactive_split_blocks;
  std::int64_t num_alloc_retries = 0;    // times the cache was released because the HBM was exhausted
  std::int64_t num_ooms = 0;             // OutOfMemoryError thrown
  std::int64_t num_tensor_frees = 0;     // blocks given back
  std::int64_t allocation_requests = 0;  // calls of allocate() with a size, failed ones included
};

// One quantity counted per pool. Kept small for the hot path: totals of decreases follow from the total of increases and the current value.
class TrackedQuantity {
 public:
  void increase(PoolKind kind, std::int64_t amount) noexcept {
    Pool& pool = pools_[index(kind)];
    pool.total += amount;
    pool.current += amount;
    pool.peak = std::max(pool.peak, pool.current);
    all_peak_ = std::max(all_peak_, pools_[0].current + pools_[1].current);
  }
  void decrease(PoolKind kind, std::int64_t amount) noexcept { pools_[index(kind)].current -= amount; }
  // A change in either direction.
  void change(PoolKind kind, std::int64_t amount) noexcept { amount < 0 ? decrease(kind, -amount) : increase(kind, amount); }

  [[nodiscard]] std::int64_t current() const noexcept { return pools_[0].current + pools_[1].current; }
  [[nodiscard]] StatGroup read() const noexcept;
  void reset_peak() noexcept;
  void reset_accumulated() noexcept;

 private:
  struct Pool {
    std::int64_t current = 0;
    std::int64_t total = 0;
    std::int64_t peak = 0;
  };
  struct Baseline {
    std::int64_t allocated = 0;
    std::int64_t freed = 0;
  };

  static std::size_t index(PoolKind kind) noexcept { return kind == PoolKind::kSmall ? 0 : 1; }
  [[nodiscard]] Stat read_pool(std::size_t pool) const noexcept;

  std::array<Pool, 2> pools_{};
  std::int64_t all_peak_ = 0;
  std::array<Baseline, 2> baselines_{};
};

}  // namespace neuron::runtime
