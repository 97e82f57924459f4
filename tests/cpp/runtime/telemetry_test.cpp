// Operator tracking and process counters.
#include "runtime/telemetry.h"

#include <thread>

#include "runtime/support.h"

namespace neuron::runtime {
namespace {

TEST(Telemetry, ExecutedAndFallbackOperators) {
  const OpId add_out = register_op("test::add.out", false);
  const OpId add_tensor = register_op("test::add.Tensor", false);
  const OpId sort = register_op("test::sort", true);
  const OpId unused = register_op("test::unused", true);
  EXPECT_NE(unused, sort);
  clear();
  count(sort);
  count(add_tensor);
  count(add_out);
  count(add_out);
  EXPECT_EQ(executed_ops(), (std::vector<std::string>{"test::add", "test::sort"}));
  EXPECT_EQ(fallback_ops(), (std::vector<std::string>{"test::sort"}));
  EXPECT_EQ(op_calls(), (std::map<std::string, std::uint64_t>{{"test::add.Tensor", 1}, {"test::add.out", 2}, {"test::sort", 1}}));
  clear();
  EXPECT_TRUE(executed_ops().empty());
  EXPECT_TRUE(fallback_ops().empty());
  telemetry::count(add_out);
  EXPECT_EQ(executed_ops(), (std::vector<std::string>{"test::add"}));
}

TEST(Telemetry, SameNameSameId) { EXPECT_EQ(register_op("test::same", false), register_op("test::same", false)); }

TEST(Telemetry, NoIncrementIsLostBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kCalls = 20000;
  const OpId id = register_op("test::parallel", false);
  clear();
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([=] {
      for (std::uint64_t call = 0; call < kCalls; ++call) {
        count(id);
      }
      register_op("test::from_thread_" + std::to_string(i), false);
      executed_ops();
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(op_calls().at("test::parallel"), kThreads * kCalls);
}

TEST(Telemetry, ProcessCounters) {
  reset_counters();
  add(Counter::kHostToDeviceCalls);
  add(Counter::kHostToDeviceBytes, 4096);
  add(Counter::kHostToDeviceBytes, 1);
  register_counter_source([](auto& values) { values["from_source"] = 42; });
  const auto values = counters();
  EXPECT_EQ(values.at("host_to_device_calls"), 1U);
  EXPECT_EQ(values.at("host_to_device_bytes"), 4097U);
  EXPECT_EQ(values.at("compile_cache_hits"), 0U);
  EXPECT_EQ(values.at("from_source"), 42U);
  reset_counters();
  EXPECT_EQ(counters().at("host_to_device_bytes"), 0U);
}

}  // namespace
}  // namespace neuron::runtime
