// Running out of memory: of the HBM and of the host; what the errors say; recovery.
#include <memory>
#include <vector>

#include "runtime/memory/caching_allocator.h"
#include "runtime/memory/out_of_memory.h"
#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using testing::error_of;

bool always_done(Stream /*stream*/) { return true; }

// A host that refuses to map from a chosen moment on.
class FailingSource final : public SegmentSource {
 public:
  void* map(std::size_t size, std::size_t huge_prefix) noexcept override {
    return refuse_ ? nullptr : SegmentSource::anonymous_memory().map(size, huge_prefix);
  }
  void unmap(void* base, std::size_t size) noexcept override {
    SegmentSource::anonymous_memory().unmap(base, size);
    refuse_ = refuse_ && !recover_on_unmap_;
  }
  void refuse(bool recover_on_unmap) {
    refuse_ = true;
    recover_on_unmap_ = recover_on_unmap;
  }

 private:
  bool refuse_ = false;
  bool recover_on_unmap_ = false;
};

TEST(AllocatorLimit, ErrorContainsTheDocumentedPhrases) {
  CachingAllocator allocator(2, 64 * kMiB, always_done);
  Block* block = allocator.allocate(48 * kMiB);
  try {
    allocator.allocate(32 * kMiB);
    FAIL() << "no error";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfDeviceMemory);
    const std::string text = error.what();
    for (const char* phrase :
         {" out of memory.", "Neuron out of memory. Tried to allocate 32.00 MiB", "Neuron OOM: requested_size=33554432 total_hbm=67108864",
          "NRT_RESOURCE", "neuron:2", "64.00 MiB", "48.00 MiB (allocated)", "(reserved)", "torch.neuron.empty_cache()", "instance type"}) {
      EXPECT_NE(text.find(phrase), std::string::npos) << phrase << " is missing in: " << text;
    }
  }
  CachingAllocator::free(block);
}

TEST(AllocatorLimit, HugeRequestTakesFreePieceOfAnotherPoolBeforeItFails) {
  CachingAllocator allocator(0, 48 * kMiB, always_done);
  Block* const medium = allocator.allocate(2 * kMiB);  // a segment of 32 MiB, of which 30 stay free
  Block* const huge = allocator.allocate(16 * kMiB + kMiB);
  Block* const other = allocator.allocate(12 * kMiB);
  EXPECT_EQ(allocator.stats().num_ooms, 0);
  EXPECT_LE(allocator.stats().reserved_bytes.all.current, static_cast<std::int64_t>(48 * kMiB));
  for (Block* block : {medium, huge, other}) {
    CachingAllocator::free(block);
  }
  EXPECT_EQ(allocator.stats().allocated_bytes.all.current, 0);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().reserved_bytes.all.current, 0);
}

TEST(AllocatorLimit, ReservedNeverExceedsTheHbmAndDeviceStaysUsable) {
  constexpr std::size_t kHbm = 70 * kMiB;
  CachingAllocator allocator(0, kHbm, always_done);
  std::vector<Block*> blocks;
  try {
    while (true) {
      blocks.push_back(allocator.allocate(3 * kMiB));
      ASSERT_LE(allocator.stats().reserved_bytes.all.current, static_cast<std::int64_t>(kHbm));
    }
  } catch (const OutOfMemoryError&) {
    EXPECT_EQ(allocator.stats().num_ooms, 1);
  }
  EXPECT_GE(blocks.size(), 21U);  // little is lost at the edges
  Block* last = blocks.back();
  blocks.pop_back();
  CachingAllocator::free(last);
  blocks.push_back(allocator.allocate(3 * kMiB));
  for (Block* block : blocks) {
    CachingAllocator::free(block);
  }
  EXPECT_EQ(allocator.stats().allocated_bytes.all.current, 0);
  EXPECT_EQ(allocator.free_bytes() + static_cast<std::size_t>(allocator.stats().reserved_bytes.all.current), kHbm);
}

TEST(AllocatorLimit, CacheIsReleasedOnceBeforeGivingUp) {
  CachingAllocator allocator(0, 64 * kMiB, always_done);
  CachingAllocator::free(allocator.allocate(40 * kMiB));
  Block* block = allocator.allocate(60 * kMiB);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  EXPECT_EQ(allocator.stats().num_ooms, 0);
  EXPECT_EQ(error_of([&] { allocator.allocate(20 * kMiB); }).code, ErrorCode::kOutOfDeviceMemory);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 2);
  EXPECT_EQ(allocator.stats().num_ooms, 1);
  EXPECT_EQ(allocator.stats().allocation_requests, 3);
  CachingAllocator::free(block);
}

TEST(AllocatorLimit, RequestsBeyondTheWholeHbmKeepTheCache) {
  CachingAllocator allocator(0, 64 * kMiB, always_done);
  CachingAllocator::free(allocator.allocate(40 * kMiB));
  for (const std::size_t bytes : {64 * kMiB + 1, ~std::size_t{0}, ~std::size_t{0} - 511, std::size_t{1} << 63U}) {
    EXPECT_EQ(error_of([&] { allocator.allocate(bytes); }).code, ErrorCode::kOutOfDeviceMemory) << bytes;
  }
  EXPECT_GT(allocator.stats().reserved_bytes.all.current, 0);
  EXPECT_EQ(allocator.stats().num_ooms, 4);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 0);
}

TEST(AllocatorLimit, SmallRequestsUseFreePiecesOfLargeSegmentsBeforeFailing) {
  CachingAllocator allocator(0, 64 * kMiB, always_done);
  CachingAllocator::free(allocator.allocate(63 * kMiB + 900 * kKiB));
  Block* large = allocator.allocate(32 * kMiB);  // splits the cached block; all HBM is reserved
  Block* small = allocator.allocate(5000);
  Block* medium = allocator.allocate(2 * kMiB);
  EXPECT_EQ(allocator.stats().allocated_bytes.small.current, 5120);
  CachingAllocator::free(small);
  CachingAllocator::free(medium);
  CachingAllocator::free(large);
  EXPECT_EQ(allocator.stats().allocated_bytes.all.current, 0);
  EXPECT_EQ(allocator.stats().inactive_split_bytes.all.current, 0);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().reserved_bytes.all.current, 0);
}

TEST(AllocatorLimit, TinyDevice) {
  CachingAllocator allocator(0, 10000, always_done);
  Block* block = allocator.allocate(3000);
  EXPECT_EQ(error_of([&] { allocator.allocate(8000); }).code, ErrorCode::kOutOfDeviceMemory);
  CachingAllocator::free(block);
  block = allocator.allocate(8000);
  CachingAllocator::free(block);
}

TEST(AllocatorLimit, HostRefusalSaysThatTheHostRanOut) {
  FailingSource source;
  CachingAllocator allocator(1, 24 * 1024 * kMiB, always_done, source);
  Block* block = allocator.allocate(4 * kMiB);
  source.refuse(false);
  const auto error = error_of([&] { allocator.allocate(100 * kMiB); });
  EXPECT_EQ(error.code, ErrorCode::kOutOfHostMemory);
  EXPECT_NE(error.text.find("host ran out of memory"), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("100.00 MiB"), std::string::npos) << error.text;
  EXPECT_EQ(error.text.find(" out of memory. Tried"), std::string::npos) << error.text;
  EXPECT_EQ(allocator.stats().num_ooms, 0);
  Block* cached = allocator.allocate(4 * kMiB);  // what is mapped still serves
  CachingAllocator::free(cached);
  CachingAllocator::free(block);
}

TEST(AllocatorLimit, CacheIsReleasedWhenTheHostRefuses) {
  FailingSource source;
  CachingAllocator allocator(1, 24 * 1024 * kMiB, always_done, source);
  CachingAllocator::free(allocator.allocate(40 * kMiB));
  source.refuse(true);
  Block* block = allocator.allocate(100 * kMiB);
  EXPECT_EQ(allocator.stats().num_alloc_retries, 1);
  CachingAllocator::free(block);
}

TEST(AllocatorLimit, SizesAreReadable) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(24 * 1024 * kMiB), "24.00 GiB");
  EXPECT_EQ(format_bytes(~std::size_t{0}), "16777216.00 TiB");
}

}  // namespace
}  // namespace neuron::runtime
