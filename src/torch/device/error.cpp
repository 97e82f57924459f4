// See error.h.
#include "torch/device/error.h"

#include "torch/device/compat.h"

namespace neuron::device {

void rethrow_as_torch_error(const runtime::Error& error) {
  switch (error.code()) {
    case runtime::ErrorCode::kOutOfDeviceMemory:
      compat::throw_error<c10::OutOfMemoryError>(error.what());
    case runtime::ErrorCode::kInvalidDevice:
    case runtime::ErrorCode::kInvalidArgument:
      compat::throw_error<c10::ValueError>(error.what());
    default:
      compat::throw_accelerator_error(static_cast<std::int32_t>(error.code()), error.what());
  }
}

}  // namespace neuron::device
