// Reading and resetting of tracked quantities.
#include "runtime/memory/stats.h"

namespace neuron::runtime {
namespace {

StatGroup group_of(const Stat& small, const Stat& large, std::int64_t all_peak) noexcept {
  StatGroup group;
  group.small = small;
  group.large = large;
  group.all = {small.current + large.current, all_peak, small.allocated + large.allocated, small.freed + large.freed};
  return group;
}

}  // namespace

StatGroup TrackedQuantity::read() const noexcept {
  std::array<Stat, 2> stats;
  for (std::size_t pool = 0; pool < stats.size(); ++pool) {
    const Pool& raw = pools_[pool];
    const Baseline& baseline = baselines_[pool];
    stats[pool] = {raw.current, raw.peak, raw.total - baseline.allocated, raw.total - raw.current - baseline.freed};
  }
  return group_of(stats[0], stats[1], all_peak_);
}

void TrackedQuantity::reset_peak() noexcept {
  for (Pool& pool : pools_) {
    pool.peak = pool.current;
  }
  all_peak_ = current();
}

void TrackedQuantity::reset_accumulated() noexcept {
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    baselines_[pool] = {pools_[pool].total, pools_[pool].total - pools_[pool].current};
  }
}

StatGroup ActiveQuantity::read(const TrackedQuantity& allocated, const TrackedQuantity& pending) const noexcept {
  std::array<Stat, 2> stats;
  for (std::size_t pool = 0; pool < stats.size(); ++pool) {
    const std::int64_t current = allocated.current(pool) - pending.current(pool);
    const std::int64_t total = allocated.total(pool);
    stats[pool] = {current, peaks_[pool], total - allocated_baselines_[pool], total - current - freed_baselines_[pool]};
  }
  return group_of(stats[0], stats[1], all_peak_);
}

void ActiveQuantity::reset_peak(const TrackedQuantity& allocated, const TrackedQuantity& pending) noexcept {
  for (std::size_t pool = 0; pool < peaks_.size(); ++pool) {
    peaks_[pool] = allocated.current(pool) - pending.current(pool);
  }
  all_peak_ = allocated.current() - pending.current();
}

void ActiveQuantity::reset_accumulated(const TrackedQuantity& allocated, const TrackedQuantity& pending) noexcept {
  for (std::size_t pool = 0; pool < peaks_.size(); ++pool) {
    allocated_baselines_[pool] = allocated.total(pool);
    freed_baselines_[pool] = allocated.total(pool) - (allocated.current(pool) - pending.current(pool));
  }
}

}  // namespace neuron::runtime
