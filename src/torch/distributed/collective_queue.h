// The collectives of one group in the order in which they were issued.
//
// Nothing waits for a thread switch that can do without: a synchronous call on an idle queue runs on the calling thread, and a thread that
// waits for a work runs the queue's next entries itself. What nobody waits for is run by one thread of the queue's own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "torch/distributed/work.h"

namespace neuron::distributed {

class CollectiveQueue final : public WorkDriver {
 public:
  using Body = std::function<void(std::uint64_t sequence)>;

  // `abort` must be callable from any thread.
  explicit CollectiveQueue(std::function<void(const std::string&)> abort) : abort_(std::move(abort)) {}
  ~CollectiveQueue() override { stop(); }

  // Reserves the next sequence number and the communicator for the calling thread, if nothing is under way. leave() gives it back.
  bool try_enter(std::uint64_t& sequence);
  void leave();

  void push(c10::intrusive_ptr<WorkNeuron> work, Body body);
  bool wait_for(const WorkNeuron& work, Deadline deadline) override;
  void abort(const std::string& why) noexcept override { abort_(why); }

  // Waits until everything issued is done, then ends the thread. Issuing later raises.
  void stop();

  [[nodiscard]] bool idle() const {
    const std::lock_guard lock(mutex_);
    return !busy_ && entries_.empty();
  }
  // Of the last collective that was issued.
  [[nodiscard]] std::uint64_t sequence() const;

 private:
  struct Entry {
    c10::intrusive_ptr<WorkNeuron> work;
    Body body;
    std::uint64_t sequence;
  };

  void run_front(std::unique_lock<std::mutex>& lock);
  void run_thread();

  std::function<void(const std::string&)> abort_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  std::uint64_t sequence_ = 0;
  bool busy_ = false;  // somebody uses the communicator
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace neuron::distributed
