// Event time stamps.
#include "runtime/event.h"

#include <chrono>

#include "runtime/error.h"

namespace neuron::runtime {

void Event::record(Stream stream) noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  device_.store(stream.device, std::memory_order_relaxed);
  recorded_at_ns_.store(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), std::memory_order_release);
}

void Event::block(Stream /*stream*/) const noexcept { synchronize(); }

bool Event::query() const noexcept { return true; }

void Event::synchronize() const noexcept {}

double Event::elapsed_ms(const Event& start, const Event& end) {
  if (!start.timing_enabled() || !end.timing_enabled()) {
    throw Error(ErrorCode::kInvalidArgument, "elapsed time needs both events to be created with enable_timing=True");
  }
  const std::int64_t from = start.recorded_at_ns_.load(std::memory_order_acquire);
  const std::int64_t to = end.recorded_at_ns_.load(std::memory_order_acquire);
  if (from == kNever || to == kNever) {
    throw Error(ErrorCode::kInvalidArgument, "elapsed time needs both events to be recorded: call record() on each first");
  }
  constexpr double kNanosecondsPerMillisecond = 1e6;
  return static_cast<double>(to - from) / kNanosecondsPerMillisecond;
}

}  // namespace neuron::runtime
