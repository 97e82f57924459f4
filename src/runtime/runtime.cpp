// Initialisation of the runtime, and its behaviour across fork().
#include "runtime/runtime.h"

#include <pthread.h>

#include <map>
#include <mutex>

#include "runtime/current_device.h"
#include "runtime/error.h"
#include "runtime/guard/access_scope.h"
#include "runtime/guard/guarded_ranges.h"
#include "runtime/memory/shared_segments.h"
#include "runtime/telemetry.h"

namespace neuron::runtime {
namespace {

// Host-driven collectives are what gives the real device more than one stream.
StreamMode read_stream_mode(const Environment& environment) {
  for (const char* variable : {"TORCH_NEURONX_ENABLE_HOST_CC", "NEURON_RT_ENABLE_HOST_CC"}) {
    if (environment.boolean(variable).value_or(false)) {
      return StreamMode::kMultiple;
    }
  }
  return StreamMode::kSingle;
}

}  // namespace

Runtime& Runtime::instance() noexcept {
  static auto& runtime = *new Runtime;  // leaked: nothing runs at exit
  return runtime;
}

Runtime::Runtime() noexcept {
  static_cast<void>(registry_lock());  // these must exist before the first fork
  static_cast<void>(SharedSegments::of_device());
  pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork_in_parent(); }, [] { instance().after_fork_in_child(); });
}

const Runtime::TopologyState& Runtime::topology_state() {
  // Published with one exchange rather than under a lock, so that it works in any forked child.
  if (const TopologyState* known = topology_state_.load(std::memory_order_acquire)) {
    return *known;
  }
  auto fresh = std::make_unique<TopologyState>();
  try {
    fresh->topology = Topology::from_environment(Environment::process());
  } catch (const Error& error) {
    fresh->error = error.what();
  }
  const TopologyState* expected = nullptr;
  if (topology_state_.compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *expected;
}

int Runtime::device_count() noexcept {
  const auto& topology = topology_state().topology;
  return topology ? static_cast<int>(topology->cores().size()) : 0;
}

std::string Runtime::topology_error() { return topology_state().error; }

const Topology& Runtime::topology() {
  const TopologyState& state = topology_state();
  if (!state.topology) {
    throw Error(ErrorCode::kInvalidEnvironment, state.error);
  }
  return *state.topology;
}

void Runtime::initialize() {
  if (in_bad_fork()) {
    throw Error(
        ErrorCode::kBadFork,
        "Cannot re-initialize Neuron in forked subprocess. To use Neuron with multiprocessing, you must use the 'spawn' start method");
  }
  if (initialized()) {
    return;
  }
  const Topology& visible = topology();
  const std::lock_guard guard(initialize_lock_);
  if (initialized()) {
    return;
  }
  static_cast<void>(Environment::process().boolean("SOFTNEURON_GUARD"));  // read when the process starts; refused here if it is bad
  const auto& cores = visible.cores();
  auto streams = std::make_unique<StreamRegistry>(static_cast<int>(cores.size()), read_stream_mode(Environment::process()));
  std::vector<std::unique_ptr<CachingAllocator>> allocators;
  allocators.reserve(cores.size());
  for (const CoreProperties& core : cores) {
    allocators.push_back(std::make_unique<CachingAllocator>(
        core.index, core.memory_bytes, [registry = streams.get()](Stream stream) { return registry->query(stream); },
        SharedSegments::of_device()));
  }
  streams_ = std::move(streams);
  allocators_ = std::move(allocators);
  for (std::size_t index = 0; index < allocators_.size(); ++index) {
    slots_[index].store(allocators_[index].get(), std::memory_order_release);
  }
  publish_counters();
  initialized_.store(true, std::memory_order_release);
}

void Runtime::publish_counters() {
  register_counter_source([this](std::map<std::string, std::uint64_t>& values) {
    for (const auto& allocator : allocators_) {
      const AllocatorStats stats = allocator->stats();
      values["allocations"] += static_cast<std::uint64_t>(stats.allocation_requests);
      values["frees"] += static_cast<std::uint64_t>(stats.num_tensor_frees);
      values["segments_mapped"] += static_cast<std::uint64_t>(stats.segments.all.allocated);
      values["allocated_bytes"] += static_cast<std::uint64_t>(stats.allocated_bytes.all.current);
      values["reserved_bytes"] += static_cast<std::uint64_t>(stats.reserved_bytes.all.current);
      values["alloc_retries"] += static_cast<std::uint64_t>(stats.num_alloc_retries);
      values["ooms"] += static_cast<std::uint64_t>(stats.num_ooms);
    }
  });
}

CachingAllocator& Runtime::allocator_slow(int device) {
  check_device(device);
  initialize();
  return *allocators_[static_cast<std::size_t>(device)];
}

std::optional<int> Runtime::device_of(const void* pointer) const noexcept {
  // In a forked child the parent's segments are still device memory, although nothing new can be allocated.
  if (!initialized() && !in_bad_fork()) {
    return std::nullopt;
  }
  for (const auto& allocator : allocators_) {
    if (allocator->contains(pointer)) {
      return allocator->device();
    }
  }
  return std::nullopt;
}

bool Runtime::share_memory() noexcept { return !in_bad_fork() && SharedSegments::of_device().enable(); }

StreamRegistry& Runtime::streams() {
  if (!initialized()) [[unlikely]] {
    initialize();
  }
  return *streams_;
}

// Lock order: initialisation, allocators by index, shared segments, guard, streams, telemetry. An allocator maps segments and asks the
// stream registry while it holds its own lock; nothing takes them the other way round.
void Runtime::before_fork() noexcept {
  initialize_lock_.lock();
  for (const auto& allocator : allocators_) {
    allocator->lock().lock();
  }
  SharedSegments::of_device().before_fork();
  if (guard::active()) {
    guard::ranges_lock().lock();
  }
  if (streams_ != nullptr) {
    streams_->lock().lock();
  }
  registry_lock().lock();
}

void Runtime::release_locks() noexcept {
  registry_lock().unlock();
  if (streams_ != nullptr) {
    streams_->lock().unlock();
  }
  if (guard::active()) {
    guard::ranges_lock().unlock();
  }
  for (const auto& allocator : allocators_) {
    allocator->lock().unlock();
  }
  initialize_lock_.unlock();
}

void Runtime::after_fork_in_parent() noexcept {
  SharedSegments::of_device().after_fork_in_parent();
  release_locks();
}

void Runtime::after_fork_in_child() noexcept {
  forked_thread_is_main();
  SharedSegments::of_device().after_fork_in_child();
  if (guard::active()) {
    guard::forget_other_threads();
  }
  if (initialized()) {
    bad_fork_.store(true, std::memory_order_relaxed);
    initialized_.store(false, std::memory_order_relaxed);
    for (auto& slot : slots_) {
      slot.store(nullptr, std::memory_order_relaxed);
    }
  }
  release_locks();
}

}  // namespace neuron::runtime
