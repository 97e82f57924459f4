// Stream pools and the per-thread current stream.
#include "runtime/stream.h"

#include <array>
#include <mutex>
#include <string>

#include "runtime/error.h"

namespace neuron::runtime {
namespace {

constexpr std::size_t kStreamsPerPriority = 32;
constexpr std::size_t kMaxDevices = 256;

// Current stream of this thread, by device; null while the thread uses default streams only. Trivially destructible on purpose: nothing of
// ours runs when a thread or the process ends. A pointer, because the plugin's thread-local storage has to fit into the few hundred bytes
// that the dynamic loader keeps free for libraries loaded late ("cannot allocate memory in static TLS block" otherwise).
using StreamIds = std::array<std::int64_t, kMaxDevices>;
constinit thread_local StreamIds* current_ids = nullptr;

}  // namespace

StreamRegistry::StreamRegistry(int devices, StreamMode mode) : mode_(mode), devices_(static_cast<std::size_t>(devices)) {
  if (static_cast<std::size_t>(devices) > kMaxDevices) {
    throw Error(ErrorCode::kInvalidArgument, "at most " + std::to_string(kMaxDevices) + " devices, got " + std::to_string(devices));
  }
}

void StreamRegistry::check_device(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= devices_.size()) {
    throw Error(ErrorCode::kInvalidDevice, "invalid device neuron:" + std::to_string(device) + ": this process sees " +
                                               std::to_string(devices_.size()) + " device(s)");
  }
}

void StreamRegistry::check_stream(Stream stream) const {
  check_device(stream.device);
  const std::lock_guard guard(lock_);
  const auto& known = devices_[static_cast<std::size_t>(stream.device)].priorities;
  if (stream.id < 0 || static_cast<std::size_t>(stream.id) >= known.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "stream " + std::to_string(stream.id) + " of neuron:" + std::to_string(stream.device) + " was never created");
  }
}

Stream StreamRegistry::default_stream(int device) const {
  check_device(device);
  return {device, 0};
}

Stream StreamRegistry::current_stream(int device) const {
  check_device(device);
  return {device, current_ids == nullptr ? 0 : (*current_ids)[static_cast<std::size_t>(device)]};
}

void StreamRegistry::set_current_stream(Stream stream) {
  check_stream(stream);
  if (current_ids == nullptr) {
    if (stream.id == 0) {
      return;
    }
    current_ids = new StreamIds{};
  }
  (*current_ids)[static_cast<std::size_t>(stream.device)] = stream.id;
}

Stream StreamRegistry::new_stream(int device, int priority) {
  check_device(device);
  if (mode_ == StreamMode::kSingle) {
    return {device, 0};
  }
  const std::lock_guard guard(lock_);
  Device& state = devices_[static_cast<std::size_t>(device)];
  Pool& pool = state.pools[priority];
  if (pool.ids.size() < kStreamsPerPriority) {
    pool.ids.push_back(static_cast<std::int64_t>(state.priorities.size()));
    state.priorities.push_back(priority);
    return {device, pool.ids.back()};
  }
  const std::int64_t id = pool.ids[pool.next];
  pool.next = (pool.next + 1) % kStreamsPerPriority;
  return {device, id};
}

int StreamRegistry::priority(Stream stream) const {
  check_stream(stream);
  const std::lock_guard guard(lock_);
  return devices_[static_cast<std::size_t>(stream.device)].priorities[static_cast<std::size_t>(stream.id)];
}

bool StreamRegistry::query(Stream stream) const {
  check_stream(stream);
  return true;
}

void StreamRegistry::synchronize(Stream stream) const { check_stream(stream); }

void StreamRegistry::synchronize_device(int device) const { check_device(device); }

}  // namespace neuron::runtime
