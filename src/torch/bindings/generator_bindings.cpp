// Python bindings of the default random number generators, one per core. Seeding and state are methods of torch.Generator.
#include <ATen/core/Generator.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>

#include "torch/bindings/bindings.h"
#include "torch/bindings/python_call.h"
#include "torch/device/generator.h"

namespace neuron::bindings {

void register_generator_bindings(pybind11::module_& m) {
  m.def("default_generator", [](int device) {
    return with_gil([&] { return at::Generator(device::default_generator(static_cast<c10::DeviceIndex>(device))); });
  });
}

}  // namespace neuron::bindings
