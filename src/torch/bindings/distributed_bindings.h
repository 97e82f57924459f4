// Python's way to the process group "neuron".
#pragma once

#include <pybind11/pybind11.h>

namespace neuron::bindings {

void register_distributed_bindings(pybind11::module_& m);

}  // namespace neuron::bindings
