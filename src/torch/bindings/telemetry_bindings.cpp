// Python bindings of the counters: which operators ran, and the named counters of the process.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "runtime/telemetry.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/python_call.h"

namespace neuron::bindings {

void register_telemetry_bindings(pybind11::module_& m) {
  m.def("executed_ops", [] { return without_gil([] { return runtime::telemetry::executed_ops(); }); });
  m.def("fallback_ops", [] { return without_gil([] { return runtime::telemetry::fallback_ops(); }); });
  m.def("clear_op_tracking", [] { without_gil([] { runtime::telemetry::clear(); }); });
  m.def("counters", [] { return without_gil([] { return runtime::telemetry::counters(); }); });
}

}  // namespace neuron::bindings
