// The process-wide runtime: lazy initialisation, bad environments, lookup of addresses, fork.
#include "runtime/runtime.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/current_device.h"
#include "runtime/support.h"
#include "runtime/telemetry.h"

namespace neuron::runtime {
namespace {

using testing::error_of;
using testing::passes_in_forked_child;
using testing::require;

std::optional<ErrorCode> code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

TEST(Runtime, CountingDevicesDoesNotInitialise) {
  NEURON_IN_FRESH_PROCESS({
    require(Runtime::instance().device_count() == 4, "four cores");
    require(Runtime::instance().topology_error().empty(), "no error");
    require(Runtime::instance().topology().instance_type() == "trn2.3xlarge", "default instance");
    require(!Runtime::instance().initialized(), "not initialised");
    require(!Runtime::instance().device_of(stdout), "nothing is device memory");
  });
}

TEST(Runtime, FirstAllocatorInitialises) {
  NEURON_IN_FRESH_PROCESS({
    CachingAllocator& allocator = Runtime::instance().allocator(3);
    require(Runtime::instance().initialized(), "initialised");
    require(allocator.device() == 3, "allocator of that core");
    require(allocator.total_bytes() == (std::size_t{24} << 30U), "HBM of the core");
    Runtime::instance().initialize();
    require(&Runtime::instance().allocator(3) == &allocator, "initialising again changes nothing");
  });
}

TEST(Runtime, ThreadsInitialiseOnce) {
  NEURON_IN_FRESH_PROCESS({
    std::vector<std::thread> threads;
    std::atomic<CachingAllocator*> seen{nullptr};
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        CachingAllocator* const mine = &Runtime::instance().allocator(1);
        CachingAllocator* expected = nullptr;
        require(seen.compare_exchange_strong(expected, mine) || expected == mine, "the same allocator for all");
        Runtime::instance().streams().synchronize_device(0);
        counters();
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  });
}

TEST(Runtime, BadEnvironmentGivesNoDevicesAndSaysWhy) {
  NEURON_IN_FRESH_PROCESS({
    setenv("NEURON_RT_VISIBLE_CORES", "", 1);
    Runtime& runtime = Runtime::instance();
    require(runtime.device_count() == 0, "no device");
    require(runtime.topology_error().find("NEURON_RT_VISIBLE_CORES") != std::string::npos, "names the variable");
    require(code_of([&] { runtime.topology(); }) == ErrorCode::kInvalidEnvironment, "topology");
    require(code_of([&] { runtime.initialize(); }) == ErrorCode::kInvalidEnvironment, "initialize");
    require(code_of([&] { runtime.streams(); }) == ErrorCode::kInvalidEnvironment, "streams");
    require(code_of([&] { runtime.allocator(0); }) == ErrorCode::kInvalidDevice, "allocator");
    require(code_of([&] { set_device(0); }) == ErrorCode::kInvalidDevice, "set_device");
    try {
      set_device(0);
    } catch (const Error& error) {
      require(std::string(error.what()).find("NEURON_RT_VISIBLE_CORES") != std::string::npos, "set_device says why");
    }
    require(!runtime.initialized(), "not initialised");
  });
}

TEST(Runtime, HbmOverrideReachesTheAllocators) {
  NEURON_IN_FRESH_PROCESS({
    setenv("SOFTNEURON_HBM_BYTES", "32M", 1);
    CachingAllocator& allocator = Runtime::instance().allocator(0);
    require(allocator.total_bytes() == 32 * kMiB, "32 MiB");
    require(code_of([&] { allocator.allocate(33 * kMiB); }) == ErrorCode::kOutOfDeviceMemory, "limit");
  });
}

TEST(Runtime, StreamModeFollowsHostDrivenCollectives) {
  NEURON_IN_FRESH_PROCESS({ require(Runtime::instance().streams().mode() == StreamMode::kSingle, "single by default"); });
  NEURON_IN_FRESH_PROCESS({
    setenv("TORCH_NEURONX_ENABLE_HOST_CC", "1", 1);
    require(Runtime::instance().streams().mode() == StreamMode::kMultiple, "several with host-driven collectives");
  });
}

TEST(Runtime, DevicesOutOfRange) {
  for (const int device : {-1, 4, 127}) {
    EXPECT_EQ(error_of([=] { Runtime::instance().allocator(device); }).code, ErrorCode::kInvalidDevice) << device;
  }
}

TEST(Runtime, DeviceOfAddress) {
  Runtime& runtime = Runtime::instance();
  Block* first = runtime.allocator(0).allocate(1000);
  Block* second = runtime.allocator(2).allocate(40 * kMiB);
  const int on_stack = 0;
  EXPECT_EQ(runtime.device_of(first->data()), 0);
  EXPECT_EQ(runtime.device_of(static_cast<char*>(second->data()) + 40 * kMiB - 1), 2);
  EXPECT_EQ(runtime.device_of(&on_stack), std::nullopt);
  EXPECT_EQ(runtime.device_of(nullptr), std::nullopt);
  CachingAllocator::free(first);
  CachingAllocator::free(second);
}

TEST(Runtime, AllocatorFiguresAreAmongTheCounters) {
  Block* block = Runtime::instance().allocator(1).allocate(4096);
  const auto before = counters();
  EXPECT_GE(before.at("allocated_bytes"), 4096U);
  CachingAllocator::free(block);
  EXPECT_EQ(counters().at("frees"), before.at("frees") + 1);
}

TEST(Fork, ChildOfAnUninitialisedParentIsFree) {
  NEURON_IN_FRESH_PROCESS({
    require(Runtime::instance().device_count() == 4, "before");
    require(passes_in_forked_child([] {
              require(!Runtime::instance().in_bad_fork(), "good fork");
              CachingAllocator::free(Runtime::instance().allocator(0).allocate(100));
            }),
            "child");
    require(!Runtime::instance().initialized(), "the parent is as before");
  });
}

TEST(Fork, ChildOfAnInitialisedParentMayOnlyLook) {
  NEURON_IN_FRESH_PROCESS({
    Runtime& runtime = Runtime::instance();
    Block* inherited = runtime.allocator(0).allocate(5000);
    Block* recorded = runtime.allocator(0).allocate(5000);
    runtime.allocator(0).record_stream(recorded, 0);
    require(passes_in_forked_child([&] {
              require(runtime.in_bad_fork(), "bad fork");
              require(runtime.device_count() == 4, "count");
              require(runtime.device_of(inherited->data()) == 0, "inherited memory is known");
              set_device(1);
              require(current_device() == 1, "current device");
              require(code_of([&] { runtime.allocator(0); }) == ErrorCode::kBadFork, "allocator");
              require(code_of([&] { runtime.streams(); }) == ErrorCode::kBadFork, "streams");
              try {
                runtime.initialize();
              } catch (const Error& error) {
                require(std::string(error.what()).find("Cannot re-initialize Neuron in forked subprocess") == 0, "text");
                require(std::string(error.what()).find("'spawn' start method") != std::string::npos, "text");
              }
              CachingAllocator::free(inherited);  // destructors of inherited tensors run in the child
              CachingAllocator::free(recorded);
              executed_ops();
              counters();
            }),
            "child");
    require(!runtime.in_bad_fork(), "the parent is as before");
    CachingAllocator::free(inherited);
    CachingAllocator::free(recorded);
    CachingAllocator::free(runtime.allocator(0).allocate(5000));
  });
}

TEST(Fork, LocksHeldByOtherThreadsDoNotReachTheChild) {
  NEURON_IN_FRESH_PROCESS({
    Runtime& runtime = Runtime::instance();
    Block* inherited = runtime.allocator(0).allocate(5000);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    threads.reserve(2);
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        while (!stop.load()) {
          CachingAllocator::free(runtime.allocator(0).allocate(3000));
          static_cast<void>(runtime.streams().query({0, 0}));
          static_cast<void>(runtime.device_of(&stop));
          register_op("test::while_forking", false);
          counters();
        }
      });
    }
    for (int i = 0; i < 30; ++i) {
      require(passes_in_forked_child([&] {
                require(runtime.device_count() == 4, "count");
                CachingAllocator::free(inherited);
                register_op("test::in_child", false);
                counters();
              }),
              "child");
    }
    stop.store(true);
    for (auto& thread : threads) {
      thread.join();
    }
  });
}

}  // namespace
}  // namespace neuron::runtime
