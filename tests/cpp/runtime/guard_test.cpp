// The memory guard: who may touch device memory and when, what is reported otherwise, and that the allocator accounts as ever. The guard
// stays on for the life of a process, so every case runs in one of its own.
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/guard/access_scope.h"
#include "runtime/guard/operator_names.h"
#include "runtime/memory/caching_allocator.h"
#include "runtime/runtime.h"
#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using guard::AccessScope;
using testing::passes_in_forked_child;
using testing::require;

constexpr std::size_t kHbm = std::size_t{1} << 30U;

bool always_done(Stream /*stream*/) { return true; }

// An allocator of core 2 in a process with the guard on.
struct Guarded {
  CachingAllocator allocator{2, kHbm, always_done};

  Guarded() : Guarded(nullptr) {}
  explicit Guarded(const char* report) { guard::activate(report); }
  volatile unsigned char* bytes(std::size_t count) { return bytes_of(allocator.allocate(count)); }
  static volatile unsigned char* bytes_of(Block* block) { return static_cast<volatile unsigned char*>(block->data()); }
};

// Whether a child of this process is killed by the signal when it does this.
bool dies_of(int signal, const std::function<void()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    action();
    std::_Exit(0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

class GuardDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// The statements end the process by the signal, and standard error matches.
#define NEURON_EXPECT_KILLED(signal, pattern, ...) EXPECT_EXIT({ __VA_ARGS__; }, ::testing::KilledBySignal(signal), pattern)

TEST_F(GuardDeathTest, ScopesOpenMemoryAndNestedOnesKeepItOpen) {
  NEURON_IN_FRESH_PROCESS({
    Guarded guarded;
    auto* data = guarded.bytes(10000);
    const AccessScope outer;
    data[0] = 1;
    {
      const AccessScope inner;
      data[9999] = 2;
      const AccessScope innermost;
    }
    require(data[0] == 1 && data[9999] == 2, "contents");
  });
}

TEST_F(GuardDeathTest, ContentsOutliveScopes) {
  NEURON_IN_FRESH_PROCESS({
    Guarded guarded;
    auto* data = guarded.bytes(3 * kMiB);
    for (int round = 0; round < 3; ++round) {
      const AccessScope scope;
      require(data[kMiB] == round, "contents");
      data[kMiB] = static_cast<unsigned char>(round + 1);
    }
  });
}

TEST_F(GuardDeathTest, StrayReadIsReported) {
  NEURON_EXPECT_KILLED(
      SIGSEGV,
      "host access to device memory outside kernels and copies\n  read at .*\n  operator: none\n"
      "  last operator of this thread: none\n  block: 1000 bytes at .* of neuron:2, allocated by none\n  place: byte 7 of it",
      {
        Guarded guarded;
        auto* data = guarded.bytes(1000);
        {
          const AccessScope scope;
          data[7] = 1;
        }
        std::_Exit(data[7]);
      });
}

TEST_F(GuardDeathTest, StrayWriteIsReported) {
  NEURON_EXPECT_KILLED(SIGSEGV, "outside kernels and copies\n  write at", { Guarded().bytes(64)[0] = 1; });
}

TEST_F(GuardDeathTest, ReportNamesTheOperators) {
  NEURON_EXPECT_KILLED(SIGSEGV, "operator: aten::add.Tensor < test::peek\n.*allocated by test::make", {
    Guarded guarded;
    guard::push_operator("test::make", "");
    auto* data = guarded.bytes(64);
    guard::pop_operator();
    guard::push_operator("test::peek", nullptr);
    guard::push_operator("aten::add", "Tensor");
    data[0] = 1;
  });
  NEURON_EXPECT_KILLED(SIGSEGV, "operator: none\n  last operator of this thread: test::peek", {
    Guarded guarded;
    guard::push_operator("test::peek", nullptr);
    guard::pop_operator();
    guarded.bytes(64)[0] = 1;
  });
}

TEST_F(GuardDeathTest, ReportGoesToTheFileAsWell) {
  const std::string path = ::testing::TempDir() + "/guard_report_" + std::to_string(getpid());
  require(dies_of(SIGSEGV, [&] { Guarded(path.c_str()).bytes(64)[0] = 1; }), "killed");
  std::FILE* file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  char text[4096] = {};
  ASSERT_GT(std::fread(text, 1, sizeof(text) - 1, file), 0U);
  std::fclose(file);
  std::remove(path.c_str());
  EXPECT_NE(std::string(text).find("block: 64 bytes at"), std::string::npos);
}

TEST_F(GuardDeathTest, OverrunOfOneByteFaultsAtAnAlignedEnd) {
  NEURON_EXPECT_KILLED(SIGSEGV, "beyond a block of device memory\n(.*\n)*  place: 1 bytes after its last byte", {
    Guarded guarded;
    const AccessScope scope;
    guarded.bytes(4096)[4096] = 1;
  });
}

TEST_F(GuardDeathTest, OverrunInsideTheAlignmentIsFoundAtTheEndOfTheKernel) {
  NEURON_EXPECT_KILLED(SIGABRT, "overwritten\n(.*\n)*  operator: test::sloppy\n  block: 1001 bytes.*\n  place: 1 bytes after its last byte",
                       {
                         Guarded guarded;
                         auto* data = guarded.bytes(1001);
                         guard::push_operator("test::sloppy", "");
                         const auto kernel = [=] {
                           const AccessScope scope;
                           data[1001] = 1;
                         };
                         kernel();
                       });
}

TEST_F(GuardDeathTest, UnderrunIsFound) {
  NEURON_EXPECT_KILLED(SIGABRT, "were overwritten\n(.*\n)*  place: 3 bytes before its begin", {
    Guarded guarded;
    auto* data = guarded.bytes(100);
    {
      const AccessScope scope;
      data[-3] = 1;
    }
  });
  NEURON_EXPECT_KILLED(SIGSEGV, "beyond a block of device memory\n(.*\n)*  place: 1 bytes before its begin", {
    Guarded guarded;
    const AccessScope scope;
    guarded.bytes(4096)[-1] = 1;
  });
}

TEST_F(GuardDeathTest, DamageOfATemporaryIsFoundWhenItIsFreed) {
  NEURON_EXPECT_KILLED(SIGABRT, "were overwritten", {
    Guarded guarded;
    const AccessScope scope;
    Block* block = guarded.allocator.allocate(10);
    Guarded::bytes_of(block)[10] = 1;
    CachingAllocator::free(block);
  });
}

TEST_F(GuardDeathTest, UseAfterFreeIsReportedInsideScopesToo) {
  NEURON_EXPECT_KILLED(SIGSEGV, "device memory that was freed\n(.*\n)*  block: 777 bytes(.*\n)*  freed by: test::drop", {
    Guarded guarded;
    Block* block = guarded.allocator.allocate(777);
    auto* data = Guarded::bytes_of(block);
    const AccessScope scope;
    data[0] = 1;
    guard::push_operator("test::drop", "");
    CachingAllocator::free(block);
    guard::pop_operator();
    for (int i = 0; i < 1000; ++i) {
      CachingAllocator::free(guarded.allocator.allocate(777));
    }
    data[0] = 2;
  });
}

TEST_F(GuardDeathTest, QuarantineEnds) {
  NEURON_IN_FRESH_PROCESS({
    Guarded guarded;
    for (int i = 0; i < 40000; ++i) {
      CachingAllocator::free(guarded.allocator.allocate(100));
    }
    require(guarded.allocator.stats().reserved_bytes.all.current == 0, "nothing is reserved");
  });
}

TEST_F(GuardDeathTest, WorkersOfAKernelMayTouchMemory) {
  NEURON_IN_FRESH_PROCESS({
    Guarded guarded;
    auto* data = guarded.bytes(1 * kMiB);
    for (int round = 0; round < 20; ++round) {
      const AccessScope scope;
      std::vector<std::thread> workers;
      workers.reserve(4);
      for (std::size_t part = 0; part < 4; ++part) {
        workers.emplace_back([=] { std::memset(const_cast<unsigned char*>(data) + part * kMiB / 4, 7, kMiB / 4); });
      }
      for (auto& worker : workers) {
        worker.join();
      }
      require(data[0] == 7 && data[kMiB - 1] == 7, "contents");
    }
  });
}

TEST_F(GuardDeathTest, WhatWorkersOpenedIsClosedAgain) {
  NEURON_EXPECT_KILLED(SIGSEGV, "outside kernels and copies", {
    Guarded guarded;
    auto* data = guarded.bytes(100);
    {
      const AccessScope scope;
      std::thread([=] { data[0] = 1; }).join();
    }
    data[1] = 1;
  });
}

TEST_F(GuardDeathTest, AnotherThreadsKernelIsNoLicence) {
  NEURON_EXPECT_KILLED(SIGSEGV, "outside kernels and copies", {
    Guarded guarded;
    auto* data = guarded.bytes(100);
    {
      const AccessScope this_thread_runs_kernels;
    }
    std::atomic<bool> inside{false};
    std::thread([&] {
      const AccessScope scope;
      inside = true;
      pause();
    }).detach();
    while (!inside) {
      std::this_thread::yield();
    }
    data[0] = 1;
  });
}

TEST_F(GuardDeathTest, KernelsOfManyThreadsOnTheSameMemory) {
  NEURON_IN_FRESH_PROCESS({
    Guarded guarded;
    auto* shared = guarded.bytes(5000);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int index = 0; index < 4; ++index) {
      threads.emplace_back([&, index] {
        for (int round = 0; round < 2000; ++round) {
          const AccessScope scope;
          shared[index] = static_cast<unsigned char>(round);
          Block* own = guarded.allocator.allocate(100);
          Guarded::bytes_of(own)[99] = 1;
          require(shared[index] == static_cast<unsigned char>(round), "contents");
          CachingAllocator::free(own);
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  });
}

volatile std::sig_atomic_t handled = 0;

TEST_F(GuardDeathTest, OtherFaultsGoToTheEarlierHandlerAndLaterHandlersStepBack) {
  NEURON_IN_FRESH_PROCESS({
    static void* page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const auto open_page = [](int /*signal*/, siginfo_t* info, void* /*context*/) {
      require(info->si_addr == page, "address");
      handled = handled + 1;
      mprotect(page, kPage, PROT_READ | PROT_WRITE);
    };
    Guarded guarded;
    struct sigaction later{};
    later.sa_sigaction = open_page;
    later.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &later, nullptr);
    auto* data = guarded.bytes(100);
    {
      const AccessScope scope;  // the guard is in front again
      data[0] = 1;
    }
    *static_cast<volatile char*>(page) = 1;
    require(handled == 1, "the other handler was called once");
  });
}

TEST_F(GuardDeathTest, ForeignFaultsStillKill) {
  NEURON_EXPECT_KILLED(SIGSEGV, "^$", {
    const Guarded guarded;
    *static_cast<volatile char*>(mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) = 1;
  });
  NEURON_EXPECT_KILLED(SIGSEGV, "^$", {
    const Guarded guarded;
    raise(SIGSEGV);
  });
}

TEST_F(GuardDeathTest, ForkedChildren) {
  NEURON_IN_FRESH_PROCESS({
    guard::activate();
    Block* block = Runtime::instance().allocator(0).allocate(100);
    volatile unsigned char* data = Guarded::bytes_of(block);
    std::atomic<bool> inside{false};
    std::thread([&] {
      const AccessScope scope;
      data[0] = 1;
      inside = true;
      pause();
    }).detach();
    while (!inside) {
      std::this_thread::yield();
    }
    require(dies_of(SIGSEGV, [=] { data[0] = 1; }), "what another thread had opened is closed in the child");
    require(passes_in_forked_child([=] {
              const AccessScope scope;
              require(data[0] == 1, "contents");
              CachingAllocator::free(block);
            }),
            "blocks of inherited tensors can be read by kernels and freed");
    const AccessScope scope;
    require(passes_in_forked_child([=] { require(data[0] == 1, "contents"); }), "a fork inside a scope");
    require(data[0] == 1, "contents");
  });
}

TEST_F(GuardDeathTest, AllocatorAccountsAsEver) {
  NEURON_IN_FRESH_PROCESS({
    Guarded guarded;
    CachingAllocator& allocator = guarded.allocator;
    Block* small = allocator.allocate(1000);
    Block* large = allocator.allocate(20 * kMiB);
    require(small->size() == 1024 && small->device() == 2, "block");
    require(reinterpret_cast<std::uintptr_t>(small->data()) % 64 == 0, "alignment");
    AllocatorStats stats = allocator.stats();
    require(stats.allocated_bytes.all.current == static_cast<std::int64_t>(20 * kMiB + 1024), "allocated");
    require(stats.reserved_bytes.all.current == static_cast<std::int64_t>(20 * kMiB + kPage), "reserved");
    require(stats.segments.all.current == 2 && stats.inactive_split_blocks.all.current == 0, "segments");
    require(stats.requested_bytes.small.current == 1000, "requested");
    require(allocator.contains(small->data()) && allocator.snapshot().segments.size() == 2, "snapshot");
    CachingAllocator::free(small);
    CachingAllocator::free(large);
    stats = allocator.stats();
    require(stats.allocated_bytes.all.current == 0 && stats.reserved_bytes.all.current == 0 && stats.segments.all.freed == 2, "freed");
    require(stats.allocated_bytes.all.peak == static_cast<std::int64_t>(20 * kMiB + 1024), "peak");
    require(allocator.empty_cache() == 0, "nothing is cached");
    const auto thrown = testing::error_of([&] { allocator.allocate(kHbm + 1); });
    require(thrown.code == ErrorCode::kOutOfDeviceMemory, "too large");
    Block* most = allocator.allocate(kHbm - kPage);
    require(testing::error_of([&] { allocator.allocate(2 * kPage); }).code == ErrorCode::kOutOfDeviceMemory, "full");
    CachingAllocator::free(allocator.allocate(kPage));
    CachingAllocator::free(most);
  });
}

TEST_F(GuardDeathTest, DoubleFreeIsStillFound) {
  NEURON_EXPECT_KILLED(SIGABRT, "freed twice", {
    Guarded guarded;
    Block* block = guarded.allocator.allocate(10);
    CachingAllocator::free(block);
    CachingAllocator::free(block);
  });
}

}  // namespace
}  // namespace neuron::runtime
