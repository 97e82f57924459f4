// The extension module torch_neuronx._C. Private: the Python package is the interface.
#include <pybind11/pybind11.h>

#include "runtime/guard/access_scope.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/compile_bindings.h"
#include "torch/bindings/distributed_bindings.h"

namespace {

// A report of the memory guard ends with the Python stack, which faulthandler prints.
void enable_faulthandler() {
  try {
    const auto faulthandler = pybind11::module_::import("faulthandler");
    if (!faulthandler.attr("is_enabled")().cast<bool>()) {
      faulthandler.attr("enable")();
    }
  } catch (const pybind11::error_already_set&) {  // a program without standard error
  }
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  using namespace neuron::bindings;
  m.doc() = "Compiled part of torch_neuronx. Private: use torch.neuron and torch_neuronx.";
  register_device_bindings(m);
  register_stream_bindings(m);
  register_memory_bindings(m);
  register_generator_bindings(m);
  register_telemetry_bindings(m);
  register_compile_bindings(m);
  register_distributed_bindings(m);
  if (neuron::runtime::guard::active()) {
    enable_faulthandler();
  }
}
