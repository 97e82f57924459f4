// Operator registry and process counters.
#include "runtime/telemetry.h"

#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "runtime/error.h"

namespace neuron::runtime {
inline namespace telemetry {

std::array<std::atomic<std::uint64_t>, kMaxOps> op_counts{};
std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Counter::kCount)> process_counters{};

namespace {

constexpr std::array<const char*, static_cast<std::size_t>(Counter::kCount)> kCounterNames{
    "host_to_device_calls",   "host_to_device_bytes",   "device_to_host_calls",  "device_to_host_bytes",
    "device_to_device_calls", "device_to_device_bytes", "compiled_graphs",       "compile_cache_hits",
    "compile_cache_misses",   "graph_executions",       "graph_break_fallbacks", "direct_collectives",
};

struct Operator {
  std::string name;
  bool host_on_trainium;
};

struct Registry {
  SpinLock lock;
  std::vector<Operator> operators;  // by OpId
  std::unordered_map<std::string, OpId> ids;
  std::vector<CounterSource> sources;
};

Registry& registry() {
  static auto& instance = *new Registry;  // leaked: nothing runs at exit
  return instance;
}

std::string base_name(const std::string& name) {
  // "aten::add.out" -> "aten::add"; a dot before "::" would belong to the namespace.
  const auto scope = name.find("::");
  return name.substr(0, name.find('.', scope == std::string::npos ? 0 : scope));
}

template <typename Condition>
std::vector<std::string> executed_if(const Condition& condition) {
  Registry& all = registry();
  std::set<std::string> names;
  const std::lock_guard guard(all.lock);
  for (std::size_t id = 0; id < all.operators.size(); ++id) {
    if (op_counts[id].load(std::memory_order_relaxed) != 0 && condition(all.operators[id])) {
      names.insert(base_name(all.operators[id].name));
    }
  }
  return {names.begin(), names.end()};
}

}  // namespace

SpinLock& registry_lock() { return registry().lock; }

OpId register_op(const std::string& name, bool host_on_trainium) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  if (const auto found = all.ids.find(name); found != all.ids.end()) {
    return found->second;
  }
  if (all.operators.size() == kMaxOps) {
    throw Error(ErrorCode::kInvalidArgument,
                "cannot register operator " + name + ": the limit of " + std::to_string(kMaxOps) + " is reached");
  }
  const auto id = static_cast<OpId>(all.operators.size());
  all.operators.push_back({name, host_on_trainium});
  all.ids.emplace(name, id);
  return id;
}

std::vector<std::string> executed_ops() {
  return executed_if([](const Operator& /*op*/) { return true; });
}

std::vector<std::string> fallback_ops() {
  return executed_if([](const Operator& op) { return op.host_on_trainium; });
}

std::map<std::string, std::uint64_t> op_calls() {
  Registry& all = registry();
  std::map<std::string, std::uint64_t> calls;
  const std::lock_guard guard(all.lock);
  for (std::size_t id = 0; id < all.operators.size(); ++id) {
    if (const std::uint64_t count = op_counts[id].load(std::memory_order_relaxed); count != 0) {
      calls.emplace(all.operators[id].name, count);
    }
  }
  return calls;
}

void clear() {
  for (auto& count : op_counts) {
    count.store(0, std::memory_order_relaxed);
  }
}

std::map<std::string, std::uint64_t> counters() {
  std::map<std::string, std::uint64_t> values;
  for (std::size_t index = 0; index < process_counters.size(); ++index) {
    values[kCounterNames[index]] = process_counters[index].load(std::memory_order_relaxed);
  }
  std::vector<CounterSource> sources;
  {
    const std::lock_guard guard(registry().lock);
    sources = registry().sources;
  }
  for (const auto& source : sources) {  // without the lock: a source takes locks of its own
    source(values);
  }
  return values;
}

void reset_counters() {
  for (auto& counter : process_counters) {
    counter.store(0, std::memory_order_relaxed);
  }
}

void register_counter_source(CounterSource source) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  all.sources.push_back(std::move(source));
}

}  // namespace telemetry
}  // namespace neuron::runtime
