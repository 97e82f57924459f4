// The seam between torch versions: everything in src/torch/device that depends on the torch that we are built for is decided here.
//
// A new torch version is a rebuild. When a virtual function changes or appears, its new form gets a branch on NEURON_TORCH_AT_LEAST in this
// file (or a feature macro defined here), and the rest of the folder stays as it is.
#pragma once

#include <c10/core/DeviceCapability.h>
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include <cstdint>
#include <string>

#define NEURON_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

static_assert(NEURON_TORCH_AT_LEAST(2, 13), "the neuron plugin needs the headers of torch 2.13 or later");

namespace neuron::device::compat {

// torch.AcceleratorError, with its `error_code` attribute.
[[noreturn]] inline void throw_accelerator_error(std::int32_t code, std::string message) {
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, code, std::move(message));
}

// Errors of the types that torch translates to Python by class (torch.OutOfMemoryError, ValueError, RuntimeError, ...).
template <typename TorchError>
[[noreturn]] inline void throw_error(std::string message) {
  throw TorchError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, std::move(message));
}

// Every dtype of the CPU but the quantized ones, whose tensors need dispatch keys of their own.
inline c10::DeviceCapability dense_dtypes_capability() {
  c10::DeviceCapability capability;
  auto& dtypes = capability.capability_data.supported_scalar_types;
  dtypes.has_QInt8 = dtypes.has_QUInt8 = dtypes.has_QInt32 = dtypes.has_QUInt4x2 = dtypes.has_QUInt2x4 = 0;
  return capability;
}

}  // namespace neuron::device::compat
