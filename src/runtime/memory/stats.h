// Allocator statistics: exact figures, per pool, with peaks and running totals.
#pragma once

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

// One quantity counted per pool. Written for few stores, because it is on the path of every allocation: the total of decreases follows from
// the total of increases and the current value, and peaks are stored only when they rise.
class TrackedQuantity {
 public:
  void increase(PoolKind kind, std::int64_t amount) noexcept {
    Pool& pool = pools_[pool_index(kind)];
    pool.total += amount;
    pool.current += amount;
    if (pool.current > pool.peak) [[unlikely]] {
      pool.peak = pool.current;
    }
    if (const std::int64_t all = current(); all > all_peak_) [[unlikely]] {
      all_peak_ = all;
    }
  }
  void decrease(PoolKind kind, std::int64_t amount) noexcept { pools_[pool_index(kind)].current -= amount; }

  [[nodiscard]] std::int64_t current() const noexcept { return pools_[0].current + pools_[1].current; }
  [[nodiscard]] std::int64_t current(std::size_t pool) const noexcept { return pools_[pool].current; }
  // Sum of all increases ever.
  [[nodiscard]] std::int64_t total(std::size_t pool) const noexcept { return pools_[pool].total; }
  [[nodiscard]] StatGroup read() const noexcept;
  void reset_peak() noexcept;
  void reset_accumulated() noexcept;

  static std::size_t pool_index(PoolKind kind) noexcept { return kind == PoolKind::kSmall ? 0 : 1; }

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

  std::array<Pool, 2> pools_{};
  std::int64_t all_peak_ = 0;
  std::array<Baseline, 2> baselines_{};
};

// "Active" is what is allocated and not pending: derived from the two, except for its peaks. Pending blocks are rare, so this costs an
// allocation three comparisons instead of a second set of counters.
class ActiveQuantity {
 public:
  // To be called after `allocated` has increased.
  void observe(PoolKind kind, const TrackedQuantity& allocated, const TrackedQuantity& pending) noexcept {
    const std::size_t pool = TrackedQuantity::pool_index(kind);
    if (const std::int64_t current = allocated.current(pool) - pending.current(pool); current > peaks_[pool]) [[unlikely]] {
      peaks_[pool] = current;
    }
    if (const std::int64_t all = allocated.current() - pending.current(); all > all_peak_) [[unlikely]] {
      all_peak_ = all;
    }
  }
  [[nodiscard]] StatGroup read(const TrackedQuantity& allocated, const TrackedQuantity& pending) const noexcept;
  void reset_peak(const TrackedQuantity& allocated, const TrackedQuantity& pending) noexcept;
  void reset_accumulated(const TrackedQuantity& allocated, const TrackedQuantity& pending) noexcept;

 private:
  std::array<std::int64_t, 2> peaks_{};
  std::int64_t all_peak_ = 0;
  std::array<std::int64_t, 2> allocated_baselines_{};
  std::array<std::int64_t, 2> freed_baselines_{};
};

}  // namespace neuron::runtime
