// A team of std::threads for tests and benchmarks of kernels: members spin for a while between calls, then sleep.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/threads.h"

namespace neuron::kernels::testing {

class ThreadTeam final : public Threads {
 public:
  explicit ThreadTeam(int count) : count_(count) {
    for (int member = 1; member < count; ++member) {
      workers_.emplace_back([this, member] { work(member); });
    }
  }
  ~ThreadTeam() override {
    stopping_ = true;
    start();
    for (auto& worker : workers_) {
      worker.join();
    }
  }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  [[nodiscard]] int count() const noexcept override { return count_; }

  void run(Body body) override {
    body_ = body;
    pending_.store(count_ - 1, std::memory_order_relaxed);
    start();
    call(0);
    for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
      pause(spins);
    }
    if (failure_) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  static constexpr int kSpins = 20000;

  static void pause(int spins) {
    if (spins > kSpins) {
      std::this_thread::yield();
    }
  }
  void start() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  void call(int member) {
    try {
      (*body_)(member, count_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  }
  void work(int member) {
    for (unsigned seen = 0;; ++seen) {
      for (int spins = 0; round_.load(std::memory_order_acquire) == seen; ++spins) {
        if (spins > kSpins) {
          round_.wait(seen, std::memory_order_acquire);
        }
      }
      if (stopping_) {
        return;
      }
      call(member);
      pending_.fetch_sub(1, std::memory_order_release);
    }
  }

  const int count_;
  std::optional<Body> body_;
  std::atomic<unsigned> round_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace neuron::kernels::testing
