// Counters that tools and torch.neuron read: which operators ran, and what the process did. Counting is one relaxed atomic increment.
// The namespace is inline: runtime::count(id) and runtime::telemetry::count(id) are the same.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/spin_lock.h"

namespace neuron::runtime {
inline namespace telemetry {

using OpId = std::uint32_t;

inline constexpr std::size_t kMaxOps = 16384;

// Counts of the registered operators, indexed by OpId.
extern std::array<std::atomic<std::uint64_t>, kMaxOps> op_counts;

// Registers an operator under its full name ("aten::add.out"). The same name gives the same id again. `host_on_trainium`: Trainium would
// run it on its host (the real device's fallback). Throws Error(kInvalidArgument) beyond kMaxOps names.
OpId register_op(const std::string& name, bool host_on_trainium);

inline void count(OpId id) noexcept { op_counts[id].fetch_add(1, std::memory_order_relaxed); }

// Base names ("aten::add", without overload) that ran since clear(); unique and sorted.
std::vector<std::string> executed_ops();
// The subset that Trainium would run on its host.
std::vector<std::string> fallback_ops();
// Calls since clear(), by full name; only operators that ran.
std::map<std::string, std::uint64_t> op_calls();
// Forgets what ran; ids stay valid. Process counters are not touched.
void clear();

enum class Counter : std::size_t {
  kHostToDeviceCalls,
  kHostToDeviceBytes,
  kDeviceToHostCalls,
  kDeviceToHostBytes,
  kDeviceToDeviceCalls,
  kDeviceToDeviceBytes,
  kCompiledGraphs,
  kCompileCacheHits,
  kCompileCacheMisses,
  kGraphExecutions,
  kGraphBreakFallbacks,
  kDirectCollectives,
  kCount,  // number of counters, not one
};

extern std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Counter::kCount)> process_counters;

inline void add(Counter counter, std::uint64_t amount = 1) noexcept {
  process_counters[static_cast<std::size_t>(counter)].fetch_add(amount, std::memory_order_relaxed);
}

// All process counters by name (for example "host_to_device_bytes"), including those of registered sources.
std::map<std::string, std::uint64_t> counters();
void reset_counters();

// A source contributes values that are kept elsewhere (such as the allocators' statistics) when counters() is read.
using CounterSource = std::function<void(std::map<std::string, std::uint64_t>&)>;
void register_counter_source(CounterSource source);

// Taken around fork() so that a child never inherits the registry half-way through a change.
SpinLock& registry_lock();

}  // namespace telemetry
}  // namespace neuron::runtime
