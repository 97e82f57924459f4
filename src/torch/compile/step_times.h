// Where the time of a program goes: nanoseconds by instruction, gathered from all runs while somebody asks (explain does).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace neuron::compile {

class StepTimes {
 public:
  explicit StepTimes(std::size_t steps) : nanoseconds_(steps) {}

  // For all programs of the process.
  static bool enabled() { return asked().load(std::memory_order_relaxed) > 0; }
  static void ask(bool on) { asked() += on ? 1 : -1; }

  // Gives each lap's time to a step. One for each run, so that runs in several threads may overlap.
  class Run {
   public:
    explicit Run(StepTimes* times) : times_(times) {}
    void lap(std::size_t step) {
      if (times_ != nullptr) {
        const auto now = std::chrono::steady_clock::now();
        times_->nanoseconds_[step] += std::chrono::duration_cast<std::chrono::nanoseconds>(now - std::exchange(start_, now)).count();
      }
    }
    void end() {
      if (times_ != nullptr) {
        ++times_->runs_;
      }
    }

   private:
    StepTimes* times_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

  std::int64_t runs() const { return runs_; }
  std::int64_t nanoseconds(std::size_t step) const { return nanoseconds_[step]; }
  std::size_t size() const { return nanoseconds_.size(); }

 private:
  static std::atomic<int>& asked() {
    static std::atomic<int> count{0};
    return count;
  }

  std::vector<std::atomic<std::int64_t>> nanoseconds_;
  std::atomic<std::int64_t> runs_{0};
};

}  // namespace neuron::compile
