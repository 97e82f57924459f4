// The caching allocator: reuse, splitting, merging, alignment, lazily committed memory, streams, snapshots.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "runtime/memory/caching_allocator.h"
#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using testing::error_of;

constexpr std::size_t kHbm = std::size_t{24} << 30U;

bool always_done(Stream /*stream*/) { return true; }

class Allocator : public ::testing::Test {
 protected:
  Block* allocate(std::size_t bytes) { return allocator_.allocate(bytes); }
  std::int64_t allocated() { return allocator_.stats().allocated_bytes.all.current; }
  std::int64_t reserved() { return allocator_.stats().reserved_bytes.all.current; }

  CachingAllocator allocator_{3, kHbm, always_done};
};

std::uintptr_t address_of(const Block* block) { return reinterpret_cast<std::uintptr_t>(block->data()); }

// Pages of [data, data + bytes) that hold memory, in bytes.
std::size_t resident_bytes(void* data, std::size_t bytes) {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(data) % kPage;
  const std::size_t length = round_up(before + bytes, kPage);
  std::vector<unsigned char> pages(length / kPage);
  EXPECT_EQ(mincore(static_cast<std::byte*>(data) - before, length, pages.data()), 0);
  return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1U) != 0; })) * kPage;
}

TEST_F(Allocator, ZeroBytesAndNull) {
  EXPECT_EQ(allocate(0), nullptr);
  CachingAllocator::free(nullptr);
  allocator_.record_stream(nullptr, 0);
  EXPECT_EQ(allocator_.stats().allocation_requests, 0);
  EXPECT_EQ(reserved(), 0);
}

TEST_F(Allocator, BlockTellsSizeAndDevice) {
  Block* block = allocate(1000);
  EXPECT_EQ(block->size(), 1024U);
  EXPECT_EQ(block->device(), 3);
  std::memset(block->data(), 0xAB, block->size());
  CachingAllocator::free(block);
}

TEST_F(Allocator, SameClassIsReusedAtOnce) {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{70000}, 3 * kMiB, 100 * kMiB}) {
    Block* first = allocate(bytes);
    void* const data = first->data();
    Block* other = allocate(bytes);
    CachingAllocator::free(first);
    Block* again = allocate(bytes);
    EXPECT_EQ(again->data(), data) << bytes;
    CachingAllocator::free(again);
    CachingAllocator::free(other);
  }
}

TEST_F(Allocator, FreedMemoryStaysReservedUntilCacheIsEmptied) {
  Block* small = allocate(512);
  Block* large = allocate(20 * kMiB);
  const std::int64_t before = reserved();
  CachingAllocator::free(small);
  CachingAllocator::free(large);
  EXPECT_EQ(allocated(), 0);
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(allocator_.empty_cache(), static_cast<std::size_t>(before));
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(allocator_.empty_cache(), 0U);
}

TEST_F(Allocator, EmptyCacheKeepsSegmentsInUse) {
  Block* small = allocate(512);
  Block* large = allocate(20 * kMiB);
  std::memset(small->data(), 7, 512);
  CachingAllocator::free(large);
  EXPECT_GE(allocator_.empty_cache(), 20 * kMiB);
  EXPECT_EQ(static_cast<unsigned char*>(small->data())[511], 7);
  CachingAllocator::free(small);
}

TEST_F(Allocator, LargeFreeBlockIsSplitAndMergedAgain) {
  CachingAllocator::free(allocate(100 * kMiB));
  const std::int64_t before = reserved();
  Block* first = allocate(40 * kMiB);
  Block* second = allocate(40 * kMiB);
  EXPECT_EQ(reserved(), before);
  EXPECT_GT(allocator_.stats().inactive_split_bytes.large.current, static_cast<std::int64_t>(19 * kMiB));
  CachingAllocator::free(first);
  CachingAllocator::free(second);
  EXPECT_EQ(allocator_.stats().inactive_split_bytes.all.current, 0);
  CachingAllocator::free(allocate(100 * kMiB));
  EXPECT_EQ(reserved(), before);
}

TEST_F(Allocator, SmallestFittingBlockIsTaken) {
  Block* big = allocate(200 * kMiB);
  Block* fitting = allocate(60 * kMiB);
  void* const data = fitting->data();
  CachingAllocator::free(fitting);
  CachingAllocator::free(big);
  Block* block = allocate(59 * kMiB);
  EXPECT_EQ(block->data(), data);
  CachingAllocator::free(block);
}

TEST_F(Allocator, SmallBlocksOfOtherClassesAreMergedBeforeAnotherSegmentIsMapped) {
  std::vector<Block*> blocks;
  while (reserved() <= static_cast<std::int64_t>(8 * kMiB)) {  // one segment, filled with blocks of 4 KiB
    blocks.push_back(allocate(4096));
  }
  CachingAllocator::free(blocks.back());
  blocks.pop_back();
  allocator_.empty_cache();
  ASSERT_EQ(reserved(), static_cast<std::int64_t>(8 * kMiB));
  for (Block* block : blocks) {
    CachingAllocator::free(block);
  }
  blocks.clear();
  for (int i = 0; i < 15; ++i) {
    blocks.push_back(allocate(512 * kKiB));
  }
  EXPECT_EQ(reserved(), static_cast<std::int64_t>(8 * kMiB));
  for (Block* block : blocks) {
    CachingAllocator::free(block);
  }
}

TEST_F(Allocator, DataIsAligned) {
  std::vector<Block*> blocks;
  for (std::size_t bytes = 1; bytes < 64 * kMiB; bytes = bytes * 3 + 7) {
    blocks.push_back(allocate(bytes));
    EXPECT_EQ(address_of(blocks.back()) % 256, 0U) << bytes;
  }
  for (Block* block : blocks) {
    CachingAllocator::free(block);
  }
}

TEST_F(Allocator, LargeBlocksStartAtDifferentOffsetsWithinAPage) {
  for (const std::size_t bytes : {2 * kMiB, 32 * kMiB}) {
    std::set<std::uintptr_t> offsets;
    std::vector<Block*> blocks;
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(allocate(bytes));
      offsets.insert(address_of(blocks.back()) % kPage);
    }
    EXPECT_GE(offsets.size(), 6U) << bytes;
    for (Block* block : blocks) {
      CachingAllocator::free(block);
    }
  }
}

TEST_F(Allocator, MemoryIsCommittedWhenTouched) {
  Block* block = allocate(std::size_t{1} << 30U);
  EXPECT_EQ(resident_bytes(block->data(), block->size()), 0U);
  std::memset(block->data(), 1, kMiB);
  EXPECT_LE(resident_bytes(block->data(), block->size()), kMiB + kHugePage + kPage);
  CachingAllocator::free(block);
}

TEST_F(Allocator, ReservedIsCloseToLargeRequests) {
  Block* block = allocate(100 * kMiB);
  EXPECT_LE(reserved(), static_cast<std::int64_t>(100 * kMiB + 2 * kPage));
  CachingAllocator::free(block);
}

TEST_F(Allocator, ContainsOnlyItsSegments) {
  Block* block = allocate(5000);
  const int on_stack = 0;
  EXPECT_TRUE(allocator_.contains(block->data()));
  EXPECT_TRUE(allocator_.contains(static_cast<char*>(block->data()) + 4999));
  EXPECT_FALSE(allocator_.contains(&on_stack));
  EXPECT_FALSE(allocator_.contains(nullptr));
  void* const data = block->data();
  CachingAllocator::free(block);
  allocator_.empty_cache();
  EXPECT_FALSE(allocator_.contains(data));
}

TEST_F(Allocator, SnapshotShowsBlocksAndTheirStates) {
  Block* first = allocator_.allocate(300, 0);
  Block* second = allocator_.allocate(2 * kMiB + 5, 0);
  const Snapshot snapshot = allocator_.snapshot();
  EXPECT_EQ(snapshot.device, 3);
  EXPECT_EQ(snapshot.total_bytes, kHbm);
  ASSERT_EQ(snapshot.segments.size(), 2U);
  for (const SegmentInfo& segment : snapshot.segments) {
    const Block* block = segment.pool == PoolKind::kSmall ? first : second;
    // A segment of large blocks may begin and end with a gap.
    ASSERT_EQ(segment.blocks.size(), block == first ? 2U : 3U);
    EXPECT_EQ(segment.blocks.front().state, block == first ? BlockState::kAllocated : BlockState::kGap);
    const std::size_t at = block == first ? 0 : 1;
    EXPECT_EQ(segment.blocks[at].address, address_of(block));
    EXPECT_EQ(segment.blocks[at].state, BlockState::kAllocated);
    EXPECT_EQ(segment.blocks[at].requested, block == first ? 300U : 2 * kMiB + 5);
    EXPECT_EQ(segment.blocks[at].allocated, block->size());
    EXPECT_EQ(segment.blocks[at + 1].state, BlockState::kFree);
    EXPECT_EQ(segment.allocated, block->size());
    EXPECT_EQ(segment.active, block->size());
  }
  CachingAllocator::free(first);
  CachingAllocator::free(second);
}

TEST_F(Allocator, FragmentationFigure) {
  EXPECT_EQ(allocator_.fragmentation().ratio(), 0.0);
  CachingAllocator::free(allocate(160 * kMiB));
  EXPECT_EQ(allocator_.fragmentation().ratio(), 0.0);
  std::vector<Block*> blocks;
  blocks.reserve(4);
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(allocate(40 * kMiB - 8 * kKiB));
  }
  CachingAllocator::free(blocks[0]);
  CachingAllocator::free(blocks[2]);
  const Fragmentation two_pieces = allocator_.fragmentation();
  EXPECT_NEAR(two_pieces.ratio(), 0.5, 0.01);
  EXPECT_GE(two_pieces.free_bytes, 79 * kMiB);
  CachingAllocator::free(blocks[1]);
  EXPECT_NEAR(allocator_.fragmentation().ratio(), 0.0, 0.01);
  CachingAllocator::free(blocks[3]);
}

TEST_F(Allocator, FreeingTwiceEndsTheProcess) {
  Block* block = allocate(100);
  CachingAllocator::free(block);
  EXPECT_DEATH(CachingAllocator::free(block), "freed twice");
}

// A stream whose work finishes when the test says so.
class RecordedStreams : public ::testing::Test {
 protected:
  bool done_ = false;
  CachingAllocator allocator_{0, kHbm, [this](Stream stream) {
                                if (stream.id > 9) {
                                  throw Error(ErrorCode::kInvalidArgument, "no such stream");
                                }
                                return stream.id != 7 || done_;
                              }};
};

TEST_F(RecordedStreams, BlockIsNotReusedBeforeTheStreamIsDone) {
  for (const std::size_t bytes : {std::size_t{4096}, 4 * kMiB}) {
    done_ = false;
    Block* block = allocator_.allocate(bytes);
    void* const data = block->data();
    allocator_.record_stream(block, 7);
    allocator_.record_stream(block, 7);
    CachingAllocator::free(block);
    const AllocatorStats pending = allocator_.stats();
    EXPECT_EQ(pending.active_bytes.all.current, 0);
    EXPECT_EQ(pending.allocated_bytes.all.current, static_cast<std::int64_t>(bytes));
    EXPECT_EQ(allocator_.snapshot().segments.back().active, 0U);

    Block* other = allocator_.allocate(bytes);
    EXPECT_NE(other->data(), data);
    EXPECT_EQ(allocator_.stats().active_bytes.all.peak, static_cast<std::int64_t>(bytes));
    CachingAllocator::free(other);
    allocator_.empty_cache();
    EXPECT_TRUE(allocator_.contains(data));

    done_ = true;
    Block* first = allocator_.allocate(bytes);
    Block* second = allocator_.allocate(bytes);
    EXPECT_TRUE(first->data() == data || second->data() == data);
    CachingAllocator::free(first);
    CachingAllocator::free(second);
    EXPECT_EQ(allocator_.stats().allocated_bytes.all.current, 0);
    EXPECT_GT(allocator_.empty_cache(), 0U);
    EXPECT_EQ(allocator_.stats().reserved_bytes.all.current, 0);
    allocator_.reset_peak_stats();
  }
}

TEST_F(RecordedStreams, OwnStreamAndFinishedStreamsDoNotDelay) {
  Block* block = allocator_.allocate(4096, 7);
  void* const data = block->data();
  allocator_.record_stream(block, 7);
  allocator_.record_stream(block, 3);
  CachingAllocator::free(block);
  Block* again = allocator_.allocate(4096);
  EXPECT_EQ(again->data(), data);
  CachingAllocator::free(again);
}

TEST_F(RecordedStreams, UnknownStreamIsRefusedWhenRecorded) {
  Block* block = allocator_.allocate(4096);
  EXPECT_EQ(error_of([&] { allocator_.record_stream(block, 10); }).code, ErrorCode::kInvalidArgument);
  CachingAllocator::free(block);
}

}  // namespace
}  // namespace neuron::runtime
