// Streams: value-type handles, and the registry that creates them and knows their state.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/spin_lock.h"

namespace neuron::runtime {

// Stream id 0 is the default stream of its device.
struct Stream {
  int device = 0;
  std::int64_t id = 0;
  friend bool operator==(const Stream&, const Stream&) = default;
};

// In single-stream mode, the device's documented default, every new stream *is* the default stream of its device.
enum class StreamMode { kSingle, kMultiple };

// Thread-safe. Functions throw Error(kInvalidDevice) for a device that does not exist and Error(kInvalidArgument) for a stream that was
// never created.
class StreamRegistry {
 public:
  StreamRegistry(int devices, StreamMode mode);

  [[nodiscard]] Stream default_stream(int device) const;
  // Per thread; the default stream until set_current_stream was called on this thread.
  [[nodiscard]] Stream current_stream(int device) const;
  void set_current_stream(Stream stream);

  // Streams come from a pool of 32 per device and priority and are handed out in turn, so creating one in a loop does not grow memory.
  Stream new_stream(int device, int priority = 0);
  [[nodiscard]] int priority(Stream stream) const;
  [[nodiscard]] StreamMode mode() const noexcept { return mode_; }

  // Whether everything submitted to the stream has finished. An eager call has finished when it returns, so it has.
  [[nodiscard]] bool query(Stream stream) const;
  void synchronize(Stream stream) const;
  void synchronize_device(int device) const;

  // Taken around fork() so that a child never inherits it half-way through a change.
  [[nodiscard]] SpinLock& lock() const noexcept { return lock_; }

 private:
  struct Pool {
    std::vector<std::int64_t> ids;
    std::size_t next = 0;
  };
  struct Device {
    std::vector<int> priorities{0};  // by stream id
    std::map<int, Pool> pools;       // by priority
  };

  void check_device(int device) const;
  void check_stream(Stream stream) const;

  StreamMode mode_;
  std::vector<Device> devices_;
  mutable SpinLock lock_;
};

}  // namespace neuron::runtime
