// See group.h.
#include "torch/distributed/group.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <algorithm>

#include "collectives/error.h"
#include "torch/distributed/interrupts.h"

namespace neuron::distributed {

using collectives::Error;
using collectives::ErrorCode;

Group::Group(GroupNames names, Meeting meeting, std::chrono::milliseconds timeout)
    : names_(std::move(names)), meeting_(std::move(meeting)) {
  thread_ = std::thread([this, timeout] {
    c10::setThreadName("neuron_meet");
    run_meeting(timeout);
  });
}

void Group::run_meeting(std::chrono::milliseconds timeout) noexcept {
  std::unique_ptr<collectives::Communicator> communicator;
  std::exception_ptr error;
  try {
    communicator = meeting_.meet(timeout, [this] {
      if (meeting_over_.load(std::memory_order_relaxed)) {
        check_interrupt();  // from now on it is called during operations
      } else if (give_up_.load(std::memory_order_relaxed)) {
        throw Error(ErrorCode::kAborted, "nobody waits for the group's ranks any more");
      }
    });
  } catch (...) {
    error = std::current_exception();
  }
  meeting_over_.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    communicator_ = std::move(communicator);
    meeting_error_ = std::move(error);
    if (communicator_ && !abort_reason_.empty()) {
      communicator_->abort(abort_reason_);
    }
  }
  met_.notify_all();
}

GroupNames Group::names() const {
  const std::lock_guard lock(mutex_);
  return names_;
}

void Group::rename(const std::string& name, const std::string& description) {
  const std::lock_guard lock(mutex_);
  names_.name = name;
  names_.description = description;
}

collectives::Communicator& Group::communicator(std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  InterruptChecks interrupts(lock);
  while (true) {
    TORCH_CHECK(!closed_, "this process group was shut down");
    if (communicator_) {  // after abort() it throws by itself, with the reason
      return *communicator_;
    }
    if (!abort_reason_.empty()) {
      throw Error(ErrorCode::kAborted, "the group was aborted: " + abort_reason_);
    }
    if (meeting_error_) {
      std::rethrow_exception(meeting_error_);
    }
    if (std::chrono::steady_clock::now() - begin >= timeout) {
      lock.unlock();
      throw_late(timeout);
    }
    met_.wait_until(lock, std::min(interrupts.due(), std::chrono::steady_clock::now() + std::min(timeout, InterruptChecks::kInterval)));
    interrupts.run_if_due();
  }
}

void Group::throw_late(std::chrono::milliseconds timeout) {
  std::string text = "the group's ranks did not meet within " + std::to_string(timeout.count()) + " ms";
  if (const auto missing = meeting_.missing(); !missing.empty()) {
    text += missing.size() == 1 ? ": missing is rank " : ": missing are ranks ";
    for (std::size_t i = 0; i < missing.size(); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(missing[i]);
    }
  }
  throw Error(ErrorCode::kTimeout, text);
}

void Group::abort(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (abort_reason_.empty()) {
    abort_reason_ = why;
  }
  give_up_.store(true, std::memory_order_relaxed);
  if (communicator_) {
    communicator_->abort(why);
  }
  met_.notify_all();
}

bool Group::aborted() const {
  const std::lock_guard lock(mutex_);
  return !abort_reason_.empty();
}

void Group::close() noexcept {
  give_up_.store(true, std::memory_order_relaxed);
  std::unique_ptr<collectives::Communicator> communicator;
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    thread = std::move(thread_);
  }
  if (thread.joinable()) {
    thread.join();
  }
  const std::lock_guard lock(mutex_);
  closed_ = true;
  communicator = std::move(communicator_);
}

std::string Group::describe() const {
  const auto names = this->names();
  auto text = c10::str("rank ", names.rank, " of ", names.size, " of process group '", names.name, "'");
  if (!names.description.empty()) {
    text += " (" + names.description + ")";
  }
  bool differ = false;
  for (std::size_t i = 0; i < names.global_ranks.size(); ++i) {
    differ |= names.global_ranks[i] != i;
  }
  if (differ) {
    text += ", whose ranks are the global ranks";
    for (std::size_t i = 0; i < names.global_ranks.size(); ++i) {
      text += c10::str(i == 0 ? " " : ", ", names.global_ranks[i]);
    }
  }
  return text;
}

}  // namespace neuron::distributed
