// The boundary between Python and the runtime: errors of the runtime become the exceptions that PyTorch users expect, and calls that may
// take a lock or long let other Python threads run.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <utility>

#include "torch/device/error.h"

namespace neuron::bindings {

// For calls that take no lock: releasing the GIL would cost more than the call.
template <typename Function>
auto with_gil(Function&& function) {
  HANDLE_TH_ERRORS
  return device::translate_errors(std::forward<Function>(function));
  END_HANDLE_TH_ERRORS_PYBIND
}

// `function` must not touch Python objects.
template <typename Function>
auto without_gil(Function&& function) {
  HANDLE_TH_ERRORS
  pybind11::gil_scoped_release no_gil;
  return device::translate_errors(std::forward<Function>(function));
  END_HANDLE_TH_ERRORS_PYBIND
}

}  // namespace neuron::bindings
