// Errors of collective operations. Every message names ranks, the collective, its sequence number and shapes where they are known.
#pragma once

#include <stdexcept>
#include <string>

namespace neuron::collectives {

enum class ErrorCode : int {
  kMismatch = 1,     // ranks called operations that do not fit together
  kTimeout,          // a rank did not arrive (or move on) in time
  kPeerDied,         // a rank's process ended, or its communicator was destroyed while others waited for it
  kAborted,          // abort() was called on some rank
  kInvalidArgument,  // this rank's arguments make no sense on their own; nothing was sent
  kSystem,           // the operating system refused (a full /dev/shm, no permission, ...)
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace neuron::collectives
