// Python's way into the compiler: a builder that receives a graph once, and the compiled graph as a callable.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron::bindings {

void register_compile_bindings(pybind11::module_& m);

}  // namespace neuron::bindings
