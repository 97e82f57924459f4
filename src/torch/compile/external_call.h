// A step that is no operator of the dispatcher: a higher-order operator of PyTorch, or a Python function in the graph. The implementation
// lives in the bindings, the only place that knows Python.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

namespace neuron::compile {

class ExternalCall {
 public:
  ExternalCall() = default;
  virtual ~ExternalCall() = default;
  ExternalCall(const ExternalCall&) = delete;
  ExternalCall& operator=(const ExternalCall&) = delete;

  // Consumes the arguments and gives as many results as the instruction has.
  virtual std::vector<c10::IValue> call(std::vector<c10::IValue> arguments) const = 0;
};

}  // namespace neuron::compile
