// Reading and resetting of tracked quantities.
#include "runtime/memory/stats.h"

namespace neuron::runtime {

Stat TrackedQuantity::read_pool(std::size_t pool) const noexcept {
  const Pool& raw = pools_[pool];
  const Baseline& baseline = baselines_[pool];
  return {raw.current, raw.peak, raw.total - baseline.allocated, raw.total - raw.current - baseline.freed};
}

StatGroup TrackedQuantity::read() const noexcept {
  StatGroup group;
  group.small = read_pool(0);
  group.large = read_pool(1);
  group.all = {group.small.current + group.large.current, all_peak_, group.small.allocated + group.large.allocated,
               group.small.freed + group.large.freed};
  return group;
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

}  // namespace neuron::runtime
