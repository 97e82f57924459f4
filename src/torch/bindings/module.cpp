// The extension module torch_neuronx._C. Private: the Python package is the interface.
#include <pybind11/pybind11.h>

#include "torch/bindings/bindings.h"
#include "torch/bindings/compile_bindings.h"

PYBIND11_MODULE(_C, m) {
  using namespace neuron::bindings;
  m.doc() = "Compiled part of torch_neuronx. Private: use torch.neuron and torch_neuronx.";
  register_device_bindings(m);
  register_stream_bindings(m);
  register_memory_bindings(m);
  register_generator_bindings(m);
  register_telemetry_bindings(m);
  register_compile_bindings(m);
}
