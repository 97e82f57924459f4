// Events: a point in a stream's order, with the real time at which the work before it had finished.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/stream.h"

namespace neuron::runtime {

// May be shared between threads. Copying is not possible, because two copies would diverge on the next record().
class Event {
 public:
  explicit Event(bool enable_timing = true) noexcept : enable_timing_(enable_timing) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Event(Event&&) = delete;
  Event& operator=(Event&&) = delete;
  ~Event() = default;

  // Work submitted to the stream so far has finished (see stream.h), so the event happens now. Recording again replaces the earlier time.
  void record(Stream stream) noexcept;
  // Makes later work of `stream` wait for the event: earlier work is already done.
  void block(Stream stream) const noexcept;
  // Whether the event has happened; an event that was never recorded counts as complete, as with CUDA.
  [[nodiscard]] bool query() const noexcept;
  void synchronize() const noexcept;

  [[nodiscard]] bool recorded() const noexcept { return recorded_at_ns_.load(std::memory_order_acquire) != kNever; }
  [[nodiscard]] bool timing_enabled() const noexcept { return enable_timing_; }
  // Device of the stream recorded last, or -1.
  [[nodiscard]] int device() const noexcept { return device_.load(std::memory_order_relaxed); }

  // Milliseconds of real time from `start` to `end` (negative when `end` was recorded first). Throws Error(kInvalidArgument) when either
  // was not recorded or was created without timing.
  static double elapsed_ms(const Event& start, const Event& end);

 private:
  static constexpr std::int64_t kNever = -1;

  std::atomic<std::int64_t> recorded_at_ns_{kNever};  // steady clock
  std::atomic<int> device_{-1};
  bool enable_timing_;
};

}  // namespace neuron::runtime
