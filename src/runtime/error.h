// Error types of the runtime layer. The plugin maps each code to the exception type that PyTorch users expect.
#pragma once

#include <stdexcept>
#include <string>

namespace neuron::runtime {

enum class ErrorCode : int {
  kInvalidDevice = 1,
  kInvalidEnvironment,
  kOutOfDeviceMemory,
  kOutOfHostMemory,
  kBadFork,
  kInvalidArgument,
};

// Every message says what was asked, what is possible and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// The HBM of one logical core is exhausted (not the host's memory: that is Error with kOutOfHostMemory).
class OutOfMemoryError : public Error {
 public:
  explicit OutOfMemoryError(const std::string& message) : Error(ErrorCode::kOutOfDeviceMemory, message) {}
};

}  // namespace neuron::runtime
