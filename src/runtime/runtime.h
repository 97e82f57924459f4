// The process-wide runtime: topology, one allocator per core, streams, and what happens to them across fork().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/memory/caching_allocator.h"
#include "runtime/spin_lock.h"
#include "runtime/stream.h"
#include "runtime/topology.h"

namespace neuron::runtime {

class Runtime {
 public:
  // The one instance, leaked on purpose. Getting it neither initialises anything nor throws.
  static Runtime& instance() noexcept;

  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  Runtime(Runtime&&) = delete;
  Runtime& operator=(Runtime&&) = delete;

  // Number of visible logical cores, 0 when the environment is bad. Cached on first use; does not initialise; safe after fork().
  int device_count() noexcept;
  // Why device_count() is 0, else empty.
  std::string topology_error();
  // Throws Error(kInvalidEnvironment) with the text of topology_error().
  const Topology& topology();

  [[nodiscard]] bool initialized() const noexcept { return initialized_.load(std::memory_order_acquire); }
  // Idempotent and thread-safe. Throws Error(kBadFork) in a child forked after the parent initialised, Error(kInvalidEnvironment) when the
  // environment is bad.
  void initialize();
  // True in a child forked after the parent initialised.
  [[nodiscard]] bool in_bad_fork() const noexcept { return bad_fork_.load(std::memory_order_relaxed); }

  // Initialises on first use. Throws as initialize(), and Error(kInvalidDevice) when the index is out of range.
  CachingAllocator& allocator(int device) {
    // Indices outside 0..255 do not exist for PyTorch (a device index is 8 bits), so the conversion keeps this at one load and one branch;
    // slots of devices that do not exist are empty and end in the slow path, which sees the index as given.
    CachingAllocator* slot = slots_[static_cast<std::uint8_t>(device)].load(std::memory_order_acquire);
    if (slot != nullptr) [[likely]] {
      return *slot;
    }
    return allocator_slow(device);
  }

  // Which core's segment holds this address; nothing when it is not device memory.
  [[nodiscard]] std::optional<int> device_of(const void* pointer) const noexcept;

  // Puts large segments that are mapped from now on into memory that other processes of the host can map (memory/shared_segments.h).
  // Returns false where that cannot be had. Thread-safe.
  bool share_memory() noexcept;

  // Initialises on first use.
  StreamRegistry& streams();

 private:
  static constexpr std::size_t kSlots = 256;
  struct TopologyState {
    std::optional<Topology> topology;
    std::string error;
  };

  Runtime() noexcept;
  ~Runtime() = default;

  const TopologyState& topology_state();
  CachingAllocator& allocator_slow(int device);
  void publish_counters();

  // Around fork(): no lock of ours may be held by a thread that does not exist in the child.
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;
  void release_locks() noexcept;

  std::array<std::atomic<CachingAllocator*>, kSlots> slots_{};
  std::atomic<const TopologyState*> topology_state_{nullptr};
  std::atomic<bool> initialized_{false};
  std::atomic<bool> bad_fork_{false};
  SpinLock initialize_lock_;
  // Written once under initialize_lock_ before initialized_ becomes true; in a forked child they still serve blocks of inherited tensors.
  std::vector<std::unique_ptr<CachingAllocator>> allocators_;
  std::unique_ptr<StreamRegistry> streams_;
};

}  // namespace neuron::runtime
