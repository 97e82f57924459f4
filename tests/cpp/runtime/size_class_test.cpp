// Size classes: rounding, waste, and that binning agrees with the class sizes.
#include "runtime/memory/size_class.h"

#include <gtest/gtest.h>

namespace neuron::runtime {
namespace {

TEST(SizeClass, SmallestIs256Bytes) {
  EXPECT_EQ(usable_size(1), 256U);
  EXPECT_EQ(usable_size(256), 256U);
  EXPECT_EQ(usable_size(257), 512U);
}

TEST(SizeClass, FromSixteenMebibytesOnlyAligned) {
  EXPECT_EQ(usable_size(16 * kMiB), 16 * kMiB);
  EXPECT_EQ(usable_size(16 * kMiB + 1), 16 * kMiB + kLargeAlignment);
  EXPECT_EQ(usable_size(1234567890), round_up(1234567890, kLargeAlignment));
}

TEST(SizeClass, PowersOfTwoAreNotRounded) {
  for (std::size_t bytes = kMinBlock; bytes <= 64 * kMiB; bytes *= 2) {
    EXPECT_EQ(usable_size(bytes), bytes);
  }
}

TEST(SizeClass, WasteIsBelowOneSixteenth) {
  for (std::size_t bytes = 4096; bytes < kExactLimit; bytes += 4093) {
    const std::size_t usable = usable_size(bytes);
    ASSERT_GE(usable, bytes);
    ASSERT_LT(static_cast<double>(usable - bytes), static_cast<double>(bytes) / 16.0 + 256.0) << bytes;
  }
}

TEST(SizeClass, SizesAscendAndAreTheirOwnClass) {
  for (std::size_t index = 1; index < size_class::kCount; ++index) {
    const std::size_t size = size_class::size_of(index);
    ASSERT_GT(size, size_class::size_of(index - 1));
    ASSERT_EQ(size_class::floor_index(size), index);
    ASSERT_EQ(size_class::floor_index(size - 1), index - 1);
    ASSERT_EQ(size_class::round_to_class(size), size);
    ASSERT_EQ(size_class::round_to_class(size_class::size_of(index - 1) + 1), size);
  }
}

TEST(SizeClass, Pools) {
  EXPECT_EQ(pool_of(kMiB - 1), PoolKind::kSmall);
  EXPECT_EQ(pool_of(kMiB), PoolKind::kMedium);
  EXPECT_EQ(pool_of(16 * kMiB - 1), PoolKind::kMedium);
  EXPECT_EQ(pool_of(16 * kMiB), PoolKind::kHuge);
}

TEST(SizeClass, EverySmallRequestHasAQuickList) {
  for (std::size_t bytes = 1; bytes < kSmallLimit; bytes += 97) {
    ASSERT_LT(size_class::floor_index(usable_size(bytes)), size_class::kSmallCount);
  }
  EXPECT_LT(size_class::floor_index(usable_size(kSmallLimit - 1)), size_class::kSmallCount);
  EXPECT_LE(size_class::kSmallCount, 256U);  // Block::quick_class is 8 bits
}

}  // namespace
}  // namespace neuron::runtime
