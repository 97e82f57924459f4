// See group.h.
#include "torch/distributed/group.h"

#include <c10/util/Exception.h>

#include "collectives/error.h"

namespace neuron::distributed {

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
  const std::lock_guard creating(creation_);
  {
    const std::lock_guard lock(mutex_);
    if (!abort_reason_.empty()) {
      throw collectives::Error(collectives::ErrorCode::kAborted, "the group was aborted: " + abort_reason_);
    }
    TORCH_CHECK(!closed_, "this process group was shut down");
    if (communicator_) {
      return *communicator_;
    }
    if (creation_error_) {
      std::rethrow_exception(creation_error_);
    }
  }
  try {
    auto communicator = factory_(timeout);
    const std::lock_guard lock(mutex_);
    communicator_ = std::move(communicator);
    if (!abort_reason_.empty()) {
      communicator_->abort(abort_reason_);
    }
    return *communicator_;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    creation_error_ = std::current_exception();
    throw;
  }
}

void Group::abort(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (abort_reason_.empty()) {
    abort_reason_ = why;
  }
  if (communicator_) {
    communicator_->abort(why);
  }
}

void Group::close() noexcept {
  std::unique_ptr<collectives::Communicator> communicator;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  communicator = std::move(communicator_);
}

bool Group::aborted() const {
  const std::lock_guard lock(mutex_);
  return !abort_reason_.empty();
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
