// Many threads on one allocator: no block has two owners, statistics stay exact. Meant for ThreadSanitizer as well.
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "runtime/memory/caching_allocator.h"
#include "runtime/support.h"

namespace neuron::runtime {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 5000;

bool always_done(Stream /*stream*/) { return true; }

TEST(AllocatorThreads, AllocateAndFreeAcrossThreads) {
  CachingAllocator allocator(0, 128 * kMiB, always_done);
  // Blocks change hands through these slots, so most are freed by another thread than the one that allocated them.
  std::array<std::atomic<Block*>, 64> exchange{};
  std::atomic<std::int64_t> allocations{0};
  std::atomic<std::int64_t> failures{0};
  std::atomic<int> corrupted{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < kSteps; ++step) {
      const std::size_t bytes = std::size_t{1} + random() % (std::size_t{1} << (8U + random() % 16U));
      Block* block = nullptr;
      try {
        block = allocator.allocate(bytes);
        allocations.fetch_add(1);
        auto* const words = static_cast<unsigned*>(block->data());
        words[0] = seed;
        words[block->size() / sizeof(unsigned) - 1] = ~seed;
        if (words[0] != seed || words[block->size() / sizeof(unsigned) - 1] != ~seed) {
          corrupted.fetch_add(1);
        }
      } catch (const OutOfMemoryError&) {
        failures.fetch_add(1);
      }
      if (random() % 16 == 0 && block != nullptr) {
        allocator.record_stream(block, 1);
      }
      CachingAllocator::free(exchange[random() % exchange.size()].exchange(block));
      if (step % 1000 == 0) {
        allocator.empty_cache();
        static_cast<void>(allocator.stats());
        static_cast<void>(allocator.snapshot());
        static_cast<void>(allocator.fragmentation());
        static_cast<void>(allocator.contains(&allocator));
      }
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (unsigned thread = 1; thread <= kThreads; ++thread) {
    threads.emplace_back(work, thread);
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (auto& slot : exchange) {
    CachingAllocator::free(slot.load());
  }
  const AllocatorStats stats = allocator.stats();
  EXPECT_EQ(corrupted.load(), 0);
  EXPECT_EQ(stats.allocation_requests, kThreads * kSteps);
  EXPECT_EQ(stats.allocations.all.allocated, allocations.load());
  EXPECT_EQ(stats.num_ooms, failures.load());
  EXPECT_EQ(stats.num_tensor_frees, allocations.load());
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
  EXPECT_EQ(stats.requested_bytes.all.current, 0);
  EXPECT_EQ(stats.inactive_split_bytes.all.current, 0);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().reserved_bytes.all.current, 0);
}

TEST(AllocatorThreads, LockIsExclusive) {
  SpinLock lock;
  int counter = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int step = 0; step < 20000; ++step) {
        const std::lock_guard guard(lock);
        ++counter;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counter, kThreads * 20000);
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
}

}  // namespace
}  // namespace neuron::runtime
