// See collective_queue.h.
#include "torch/distributed/collective_queue.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <utility>

#include "torch/distributed/interrupts.h"

namespace neuron::distributed {

bool CollectiveQueue::try_enter(std::uint64_t& sequence) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!stopping_, "this process group was shut down");
  if (busy_ || !entries_.empty()) {
    return false;
  }
  busy_ = true;
  sequence = ++sequence_;
  return true;
}

void CollectiveQueue::leave() {
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    if (entries_.empty() && !stopping_) {
      return;
    }
  }
  changed_.notify_all();
}

void CollectiveQueue::push(c10::intrusive_ptr<WorkNeuron> work, Body body) {
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!stopping_, "this process group was shut down");
    work->set_sequence(++sequence_);
    entries_.push_back({std::move(work), std::move(body), sequence_});
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run_thread(); });
    }
  }
  changed_.notify_all();
}

void CollectiveQueue::run_front(std::unique_lock<std::mutex>& lock) {
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  busy_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    entry.work->mark_started();
    entry.body(entry.sequence);
  } catch (...) {
    error = std::current_exception();
  }
  entry.body = nullptr;
  // Free before the work completes: what hangs on its future may issue collectives of this group and wait for them.
  lock.lock();
  busy_ = false;
  lock.unlock();
  entry.work->complete(std::move(error));
  lock.lock();
  changed_.notify_all();
}

bool CollectiveQueue::wait_for(const WorkNeuron& work, Deadline deadline) {
  std::unique_lock lock(mutex_);
  InterruptChecks interrupts(lock);
  while (!work.completed()) {
    // An operation takes as long as it takes: who waits for a limited time leaves it to the thread.
    if (deadline == Deadline::max() && !busy_ && !entries_.empty()) {
      run_front(lock);
      continue;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    changed_.wait_until(lock, std::min(deadline, interrupts.due()));
    interrupts.run_if_due();
  }
  return true;
}

void CollectiveQueue::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  if (thread_.joinable()) {
    std::thread thread = std::move(thread_);
    lock.unlock();
    thread.join();
    lock.lock();
  }
  changed_.wait(lock, [this] { return !busy_ && entries_.empty(); });
}

std::uint64_t CollectiveQueue::sequence() const {
  const std::lock_guard lock(mutex_);
  return sequence_;
}

void CollectiveQueue::run_thread() {
  c10::setThreadName("neuron_colls");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return (!entries_.empty() && !busy_) || (stopping_ && entries_.empty()); });
    if (entries_.empty()) {
      return;
    }
    run_front(lock);
  }
}

}  // namespace neuron::distributed
