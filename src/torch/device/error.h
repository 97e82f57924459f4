// Turns errors of the runtime layer into the exceptions that torch carries to Python.
//
//   out of device memory         torch.OutOfMemoryError
//   invalid device or argument   ValueError
//   everything else              torch.AcceleratorError, a RuntimeError (use after fork, bad environment, host memory exhausted)
#pragma once

#include <utility>

#include "runtime/error.h"

namespace neuron::device {

[[noreturn]] void rethrow_as_torch_error(const runtime::Error& error);

// Runs `function` and translates what it throws. Costs nothing when nothing is thrown.
template <typename Function>
decltype(auto) translate_errors(Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const runtime::Error& error) {
    rethrow_as_torch_error(error);
  }
}

}  // namespace neuron::device
