// Statistics and invariants after every step of random sequences, against a model that knows only the live blocks and the definitions.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/memory/caching_allocator.h"
#include "runtime/support.h"

namespace neuron::runtime {
namespace {

bool always_done(Stream /*stream*/) { return true; }

struct Live {
  Block* block;
  std::size_t requested;
  unsigned char pattern;
};

// One quantity of the model, updated once per step.
struct ModelStat {
  Stat small;
  Stat large;
  std::int64_t all_peak = 0;

  void add(std::size_t requested, std::int64_t amount) {
    Stat& stat = requested < kMiB ? small : large;
    stat.current += amount;
    (amount > 0 ? stat.allocated : stat.freed) += amount > 0 ? amount : -amount;
    observe();
  }
  void observe() {
    small.peak = std::max(small.peak, small.current);
    large.peak = std::max(large.peak, large.current);
    all_peak = std::max(all_peak, small.current + large.current);
  }
  [[nodiscard]] StatGroup group() const {
    return {{small.current + large.current, all_peak, small.allocated + large.allocated, small.freed + large.freed}, small, large};
  }
  void reset_peak() {
    small.peak = small.current;
    large.peak = large.current;
    all_peak = small.current + large.current;
  }
  void reset_accumulated() { small.allocated = small.freed = large.allocated = large.freed = 0; }
};

class AllocatorModel : public ::testing::TestWithParam<unsigned> {
 protected:
  static constexpr std::size_t kHbm = 256 * kMiB;

  void allocate() {
    const std::size_t bytes = random_size();
    ++requests_;
    Block* block = nullptr;
    try {
      block = allocator_.allocate(bytes);
    } catch (const OutOfMemoryError&) {
      ++ooms_;
      return;
    }
    const auto pattern = static_cast<unsigned char>(random_());
    for (const std::size_t offset : {std::size_t{0}, bytes / 2, bytes - 1}) {
      static_cast<unsigned char*>(block->data())[offset] = pattern;
    }
    live_.push_back({block, bytes, pattern});
    allocated_.add(bytes, static_cast<std::int64_t>(usable_size(bytes)));
    requested_.add(bytes, static_cast<std::int64_t>(bytes));
    blocks_.add(bytes, 1);
  }

  void free() {
    const std::size_t index = random_() % live_.size();
    const Live live = live_[index];
    live_[index] = live_.back();
    live_.pop_back();
    for (const std::size_t offset : {std::size_t{0}, live.requested / 2, live.requested - 1}) {
      ASSERT_EQ(static_cast<unsigned char*>(live.block->data())[offset], live.pattern) << "somebody else wrote to a live block";
    }
    CachingAllocator::free(live.block);
    ++frees_;
    allocated_.add(live.requested, -static_cast<std::int64_t>(usable_size(live.requested)));
    requested_.add(live.requested, -static_cast<std::int64_t>(live.requested));
    blocks_.add(live.requested, -1);
  }

  std::size_t random_size() {
    // Log-uniform from 1 byte to 40 MiB, with round sizes more frequent than chance.
    const unsigned bits = random_() % 26;
    const std::size_t size = std::size_t{1} << bits;
    return random_() % 3 == 0 ? size : size + random_() % size;
  }

  // Everything that follows from the snapshot by definition.
  void check() {
    const Snapshot snapshot = allocator_.snapshot();
    ModelStat reserved_now;
    ModelStat inactive_now;
    std::size_t free_bytes = 0;
    std::size_t live_blocks = 0;
    std::uintptr_t previous_end = 0;
    for (const SegmentInfo& segment : snapshot.segments) {
      ASSERT_GE(segment.address, previous_end);
      previous_end = segment.address + segment.size;
      Stat& reserved = segment.pool == PoolKind::kSmall ? reserved_now.small : reserved_now.large;
      Stat& inactive = segment.pool == PoolKind::kSmall ? inactive_now.small : inactive_now.large;
      reserved.current += static_cast<std::int64_t>(segment.size);
      std::size_t segment_free = 0;
      std::size_t segment_live = 0;
      std::uintptr_t expected = segment.address;
      bool previous_binned = false;
      for (const BlockInfo& block : segment.blocks) {
        ASSERT_EQ(block.address, expected) << "blocks must tile the segment";
        expected += block.size;
        if (block.state == BlockState::kGap) {
          ASSERT_EQ(block.allocated, 0U);
          continue;
        }
        const bool is_live = block.state == BlockState::kAllocated;
        segment_live += is_live ? 1 : 0;
        segment_free += is_live ? 0 : block.size;
        ASSERT_LE(block.requested, block.allocated);
        ASSERT_LE(block.allocated, block.size);
        const bool binned = block.state == BlockState::kFree;
        ASSERT_FALSE(binned && previous_binned) << "neighbouring free blocks were not merged";
        previous_binned = binned;
      }
      ASSERT_EQ(expected, previous_end) << "blocks must fill the segment";
      ASSERT_LT(previous_end - expected, kPage);
      live_blocks += segment_live;
      free_bytes += segment_free;
      inactive.current += segment_live != 0 ? static_cast<std::int64_t>(segment_free) : 0;
    }
    ASSERT_EQ(live_blocks, live_.size());
    inactive_.small.current = inactive_now.small.current;
    inactive_.large.current = inactive_now.large.current;
    inactive_.observe();

    const AllocatorStats stats = allocator_.stats();
    ASSERT_EQ(stats.allocated_bytes, allocated_.group());
    ASSERT_EQ(stats.active_bytes, allocated_.group());
    ASSERT_EQ(stats.requested_bytes, requested_.group());
    ASSERT_EQ(stats.allocations, blocks_.group());
    ASSERT_EQ(stats.active_blocks, blocks_.group());
    ASSERT_EQ(stats.reserved_bytes.small.current, reserved_now.small.current);
    ASSERT_EQ(stats.reserved_bytes.large.current, reserved_now.large.current);
    ASSERT_EQ(stats.segments.all.current, static_cast<std::int64_t>(snapshot.segments.size()));
    ASSERT_EQ(stats.inactive_split_bytes.small.current, inactive_.small.current);
    ASSERT_EQ(stats.inactive_split_bytes.large.current, inactive_.large.current);
    ASSERT_EQ(stats.inactive_split_bytes.all.peak, inactive_.all_peak);
    ASSERT_EQ(stats.inactive_split_bytes.all.allocated - stats.inactive_split_bytes.all.freed,
              stats.inactive_split_bytes.all.current - inactive_at_reset_);
    ASSERT_LE(stats.reserved_bytes.all.current, static_cast<std::int64_t>(kHbm));
    ASSERT_GE(stats.reserved_bytes.all.current, stats.allocated_bytes.all.current);
    ASSERT_EQ(stats.num_ooms, ooms_);
    ASSERT_EQ(stats.allocation_requests, requests_);
    ASSERT_EQ(stats.num_tensor_frees, frees_);
    ASSERT_EQ(allocator_.free_bytes(), kHbm - static_cast<std::size_t>(stats.reserved_bytes.all.current));
    const Fragmentation fragmentation = allocator_.fragmentation();
    ASSERT_EQ(fragmentation.free_bytes, free_bytes);
    ASSERT_LE(fragmentation.largest_free_block, free_bytes);
  }

  void reset_all() {
    allocator_.reset_peak_stats();
    allocator_.reset_accumulated_stats();
    for (ModelStat* stat : {&allocated_, &requested_, &blocks_, &inactive_}) {
      stat->reset_peak();
      stat->reset_accumulated();
    }
    inactive_at_reset_ = inactive_.small.current + inactive_.large.current;
    requests_ = ooms_ = frees_ = 0;
  }

  CachingAllocator allocator_{0, kHbm, always_done};
  std::mt19937 random_{GetParam()};
  std::vector<Live> live_;
  ModelStat allocated_;
  ModelStat requested_;
  ModelStat blocks_;
  ModelStat inactive_;
  std::int64_t inactive_at_reset_ = 0;
  std::int64_t requests_ = 0;
  std::int64_t ooms_ = 0;
  std::int64_t frees_ = 0;
};

TEST_P(AllocatorModel, StatisticsAreExactAfterEveryStep) {
  std::int64_t ooms_seen = 0;
  for (int step = 0; step < 4000; ++step) {
    // Phases that mostly grow and phases that mostly shrink, so that both a full device and a scattered cache occur.
    const bool growing = step / 500 % 2 == 0;
    const bool free_now = !live_.empty() && random_() % 10 < (growing ? 4U : 6U);
    if (free_now) {
      ASSERT_NO_FATAL_FAILURE(free());
    } else {
      allocate();
    }
    if (random_() % 300 == 0) {
      allocator_.empty_cache();
    }
    ASSERT_NO_FATAL_FAILURE(check()) << "step " << step;
    if (random_() % 500 == 0) {
      ooms_seen += ooms_;
      reset_all();
    }
  }
  EXPECT_GT(ooms_seen + ooms_, 0) << "the sequence never filled the device";
  while (!live_.empty()) {
    ASSERT_NO_FATAL_FAILURE(free());
    ASSERT_NO_FATAL_FAILURE(check());
  }
  allocator_.empty_cache();
  EXPECT_EQ(allocator_.stats().reserved_bytes.all.current, 0);
  EXPECT_EQ(allocator_.stats().inactive_split_blocks.all.current, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AllocatorModel, ::testing::Range(1U, 5U));

}  // namespace
}  // namespace neuron::runtime
