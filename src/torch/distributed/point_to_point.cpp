// See point_to_point.h.
#include "torch/distributed/point_to_point.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <utility>

#include "collectives/error.h"
#include "runtime/guard/access_scope.h"
#include "torch/distributed/interrupts.h"

namespace neuron::distributed {
namespace {

// The mailbox is asked with the lock held, also while it waits for other ranks: so for no longer than another thread may be kept from
// posting.
constexpr auto kLongestDoze = std::chrono::milliseconds(1);

}  // namespace

void PointToPoint::post(Message message) {
  auto& communicator = group_->communicator(message.timeout);
  const runtime::guard::AccessScope access;
  ++posting_;
  std::unique_lock lock(mutex_);
  --posting_;
  TORCH_CHECK(!stopping_, "this process group was shut down");
  mailbox_ = &communicator.mailbox();
  const auto bytes = message.data.nbytes();
  const auto ticket = message.receive ? mailbox_->post_receive(message.peer, message.tag, message.data.mutable_data_ptr(), bytes)
                                      : mailbox_->post_send(message.peer, message.tag, message.data.const_data_ptr(), bytes);
  const auto deadline = std::chrono::steady_clock::now() + message.timeout;
  posted_.push_back({std::move(message), ticket, deadline});
  ++activity_;
  step(lock);
  if (!posted_.empty() && !thread_.joinable() && !stopping_) {
    thread_ = std::thread([this] { run_thread(); });
  }
  lock.unlock();
  changed_.notify_all();
}

void PointToPoint::step(std::unique_lock<std::mutex>& lock) {
  std::vector<Done> done;
  std::exception_ptr broken;
  {
    const runtime::guard::AccessScope access;
    try {
      mailbox_->progress();
    } catch (...) {
      broken = std::current_exception();
    }
    if (broken) {
      for (auto& posted : posted_) {
        done.push_back({std::move(posted.message), broken});
      }
      posted_.clear();
    } else {
      collect(done);
      expire(done);
    }
  }
  if (done.empty()) {
    return;
  }
  lock.unlock();
  for (auto& [message, error] : done) {
    try {
      if (!error && message.target.defined()) {
        const c10::NoGradGuard no_grad;
        const at::AutoDispatchBelowADInplaceOrView below_autograd;
        message.target.copy_(message.data);
      }
    } catch (...) {
      error = std::current_exception();
    }
    message.work->complete(error ? describe_(message, error) : nullptr);
  }
  lock.lock();
  for (auto& [message, error] : done) {
    if (error) {
      message.work.reset();
      abandoned_.push_back(std::move(message));
    }
  }
  changed_.notify_all();
}

void PointToPoint::collect(std::vector<Done>& done) {
  std::erase_if(posted_, [&](Posted& posted) {
    std::exception_ptr error;
    try {
      const auto source = mailbox_->finished(posted.ticket);
      if (!source) {
        return false;
      }
      posted.message.work->set_source_rank(posted.message.receive ? *source : -1);
    } catch (...) {
      error = std::current_exception();
    }
    done.push_back({std::move(posted.message), error});
    return true;
  });
}

void PointToPoint::expire(std::vector<Done>& done) {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(posted_, [&](Posted& posted) {
    if (now < posted.deadline) {
      return false;
    }
    const auto error = std::make_exception_ptr(
        collectives::Error(collectives::ErrorCode::kTimeout, "no answer within " + std::to_string(posted.message.timeout.count()) + " ms"));
    done.push_back({std::move(posted.message), error});
    return true;
  });
}

void PointToPoint::doze(std::unique_lock<std::mutex>& lock) {
  try {
    mailbox_->wait(kLongestDoze);
  } catch (...) {  // the next step meets the same error and hands it to the messages
  }
  if (posting_.load(std::memory_order_relaxed) > 0) {
    lock.unlock();
    std::this_thread::yield();  // the mutex is not fair
    lock.lock();
  }
}

bool PointToPoint::wait_for(const WorkNeuron& work, Deadline deadline) {
  // Bounded, so that arithmetic on it cannot overflow.
  deadline = std::min(deadline, std::chrono::steady_clock::now() + std::chrono::hours(24 * 365));
  std::unique_lock lock(mutex_);
  struct Driving {
    std::atomic<int>& count;
    explicit Driving(std::atomic<int>& drivers) : count(drivers) { ++count; }
    ~Driving() { --count; }
  } driving(drivers_);
  InterruptChecks interrupts(lock);
  while (!work.completed()) {
    if (posted_.empty()) {  // another thread is about to complete it
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      continue;
    }
    step(lock);
    if (work.completed()) {
      break;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      changed_.notify_all();
      return false;
    }
    interrupts.run_if_due();
    doze(lock);
  }
  changed_.notify_all();
  return true;
}

void PointToPoint::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  if (thread_.joinable()) {
    std::thread thread = std::move(thread_);
    lock.unlock();
    thread.join();
  }
}

void PointToPoint::run_thread() {
  c10::setThreadName("neuron_p2p");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return (!posted_.empty() && drivers_ == 0) || (stopping_ && posted_.empty()); });
    if (posted_.empty()) {
      return;
    }
    // Leaves a program that posts several messages in a row alone.
    const auto seen = activity_;
    changed_.wait_for(lock, kLongestDoze, [&] { return activity_ != seen || drivers_ != 0; });
    if (activity_ != seen || drivers_ != 0) {
      continue;
    }
    step(lock);
    if (!posted_.empty()) {
      doze(lock);
    }
  }
}

}  // namespace neuron::distributed
