// Ctrl-C during a wait.
#pragma once

#include <chrono>
#include <mutex>

namespace neuron::distributed {

// To be called now and then by a thread that waits without the GIL: on Python's main thread it runs pending signal handlers and passes on
// what they raise (KeyboardInterrupt).
void check_interrupt();

// The same for a loop that waits with a lock held: now and then is every 100 ms, and the lock is let go meanwhile.
class InterruptChecks {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};

  explicit InterruptChecks(std::unique_lock<std::mutex>& lock) : lock_(lock) {}

  // Until when the loop may sleep.
  [[nodiscard]] std::chrono::steady_clock::time_point due() const noexcept { return due_; }
  // What handlers raise leaves the lock open.
  void run_if_due();

 private:
  std::unique_lock<std::mutex>& lock_;
  std::chrono::steady_clock::time_point due_ = std::chrono::steady_clock::now() + kInterval;
};

}  // namespace neuron::distributed
