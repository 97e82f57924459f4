// A step of a program that calls a Python function; the interpreter lock is taken for it alone.
#pragma once

#include <pybind11/pybind11.h>

#include "torch/compile/external_call.h"

namespace neuron::bindings {

// A value of the executor as a Python object and back: tensors, numbers, bool, None; other objects pass through. Both need the
// interpreter lock.
pybind11::object to_python(const c10::IValue& value);
c10::IValue from_python(pybind11::handle object);

class PythonExternalCall final : public compile::ExternalCall {
 public:
  // `function(list of arguments) -> list of results`.
  explicit PythonExternalCall(pybind11::object function) : function_(std::move(function)) {}
  ~PythonExternalCall() override;

  std::vector<c10::IValue> call(std::vector<c10::IValue> arguments) const override;

 private:
  pybind11::object function_;
};

}  // namespace neuron::bindings
