// Python bindings of the device table, the current device and the state of the runtime.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "runtime/current_device.h"
#include "runtime/runtime.h"
#include "runtime/topology.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/python_call.h"
#include "torch/device/autograd_threads.h"
#include "torch/device/initialize.h"

namespace neuron::bindings {
namespace {

using runtime::CoreProperties;
using runtime::Runtime;

std::string describe(const CoreProperties& core) {
  return "NeuronDeviceProperties(name='" + core.name + "', total_memory=" + std::to_string(core.memory_bytes) +
         ", core_id=" + std::to_string(core.core_id) + ", chip=" + std::to_string(core.chip) + ")";
}

void register_properties(pybind11::module_& m) {
  pybind11::class_<CoreProperties>(m, "NeuronDeviceProperties", "One logical NeuronCore as the process sees it.")
      .def_readonly("name", &CoreProperties::name, "`neuron:<index>`")
      .def_readonly("total_memory", &CoreProperties::memory_bytes, "device memory of this core in bytes")
      .def_readonly("core_id", &CoreProperties::core_id, "number of the core on its instance, before NEURON_RT_VISIBLE_CORES renumbers")
      .def_readonly("chip", &CoreProperties::chip, "number of the chip that holds the core")
      .def("__repr__", &describe);
  m.def("device_properties", [](int device) {
    return without_gil([&] {
      device::initialize_device();
      runtime::check_device(device);
      return Runtime::instance().topology().cores()[static_cast<std::size_t>(device)];
    });
  });
  m.def("instance_type", [] { return with_gil([] { return Runtime::instance().topology().instance_type(); }); });
}

void register_runtime_state(pybind11::module_& m) {
  m.def("device_count", [] { return Runtime::instance().device_count(); });
  m.def("topology_error", [] { return Runtime::instance().topology_error(); });
  m.def("is_initialized", [] { return Runtime::instance().initialized() && !Runtime::instance().in_bad_fork(); });
  m.def("is_in_bad_fork", [] { return Runtime::instance().in_bad_fork(); });
  m.def("initialize", [] { without_gil([] { device::initialize_device(); }); });
  m.def("drain_autograd_threads", [] { without_gil([] { device::drain_autograd_threads(); }); });
}

void register_current_device(pybind11::module_& m) {
  m.def("check_device", [](int device) { with_gil([&] { runtime::check_device(device); }); });
  m.def("current_device", [] { return runtime::current_device(); });
  m.def("set_device", [](int device) { with_gil([&] { runtime::set_device(device); }); });
  // A negative number means "leave it": the context managers pass it on when there is nothing to do or to restore.
  m.def("exchange_device", [](int device) { return device < 0 ? -1 : with_gil([&] { return runtime::exchange_device(device); }); });
}

}  // namespace

void register_device_bindings(pybind11::module_& m) {
  register_properties(m);
  register_runtime_state(m);
  register_current_device(m);
}

}  // namespace neuron::bindings
