// What module.cpp puts together: one function per topic, each adding its names to torch_neuronx._C.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron::bindings {

void register_device_bindings(pybind11::module_& m);
void register_stream_bindings(pybind11::module_& m);
void register_memory_bindings(pybind11::module_& m);
void register_generator_bindings(pybind11::module_& m);
void register_telemetry_bindings(pybind11::module_& m);

}  // namespace neuron::bindings
