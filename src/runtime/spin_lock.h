// A small lock for very short critical sections: spins briefly, then yields, then sleeps. Taking it uncontended is one atomic exchange and
// releasing it is a plain store, which is what keeps a cached allocation cheap. It has no owner, so a forked child may release what its
// parent's thread acquired before the fork.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace neuron::runtime {

class SpinLock {
 public:
  void lock() noexcept {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]] {
      wait_and_lock();
    }
  }
  bool try_lock() noexcept { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void wait_and_lock() noexcept {
    // On a machine with fewer free cores than threads the holder may not be running: hand the core over early.
    constexpr int kSpins = 64;
    constexpr int kYields = 256;
    constexpr std::chrono::microseconds kNap{50};
    int round = 0;
    do {
      while (held_.load(std::memory_order_relaxed)) {
        ++round;
        if (round < kSpins) {
          pause();
        } else if (round < kYields) {
          std::this_thread::yield();
        } else {
          std::this_thread::sleep_for(kNap);
        }
      }
    } while (held_.exchange(true, std::memory_order_acquire));
  }

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<bool> held_{false};
};

}  // namespace neuron::runtime
