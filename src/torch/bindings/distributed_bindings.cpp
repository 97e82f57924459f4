// The process group "neuron" for Python. torch_neuronx registers it with torch.distributed.
#include "torch/bindings/distributed_bindings.h"

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <string>

#include "torch/bindings/python_call.h"
#include "torch/distributed/core_binding.h"
#include "torch/distributed/flight_recorder.h"
#include "torch/distributed/live_groups.h"
#include "torch/distributed/meeting.h"
#include "torch/distributed/process_group_neuron.h"

namespace py = pybind11;

namespace neuron::bindings {
namespace {

using distributed::ProcessGroupNeuron;
using Milliseconds = std::chrono::milliseconds;

// The base classes belong to torch.distributed, which must have been imported: so the class is made when the first group is.
void register_process_group(py::module_& m) {
  auto group = py::class_<ProcessGroupNeuron, c10d::Backend, c10::intrusive_ptr<ProcessGroupNeuron>>(
      m, "ProcessGroupNeuron", "torch.distributed's backend \"neuron\".");
  py::class_<ProcessGroupNeuron::Options, c10d::Backend::Options, c10::intrusive_ptr<ProcessGroupNeuron::Options>>(
      group, "Options", "What `pg_options` of init_process_group and new_group may hold: the timeout of operations.")
      .def(py::init([](Milliseconds timeout) { return c10::make_intrusive<ProcessGroupNeuron::Options>(timeout); }),
           py::arg("timeout") = kBackendDefaultTimeout)
      .def("__deepcopy__", [](const ProcessGroupNeuron::Options& self, const py::object&) {
        return c10::make_intrusive<ProcessGroupNeuron::Options>(self);
      });
  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       c10::intrusive_ptr<ProcessGroupNeuron::Options> options) {
             const py::gil_scoped_release no_gil;
             return distributed::make_live(store, rank, size, std::move(options));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"))
      .def_property_readonly("options",
                             [](ProcessGroupNeuron& self) {
                               return c10::static_intrusive_pointer_cast<ProcessGroupNeuron::Options>(self.getBackendOptions());
                             })
      // torch.distributed calls it on the ranks that are not in a new group, for backends that need them to take part. Ours does not.
      .def(
          "perform_nocolor_split", [](const ProcessGroupNeuron&, const py::object&) {}, py::arg("device"))
      .def("_get_sequence_number_for_group", &ProcessGroupNeuron::getSequenceNumberForGroup);
}

}  // namespace

void register_distributed_bindings(py::module_& m) {
  m.def("register_process_group", [m]() mutable {
    if (!py::hasattr(m, "ProcessGroupNeuron")) {
      register_process_group(m);
    }
  });
  m.def("set_gloo_factory", [](distributed::GlooFactory factory) { distributed::set_gloo_factory(std::move(factory)); });
  m.def("flight_record", [] { return without_gil([] { return distributed::FlightRecorder::instance().to_json(); }); });
  m.def("leave_all_process_groups", [] { without_gil([] { distributed::leave_all(); }); });
  m.def("bind_to_cores",
        [](int local_rank, int local_size) { return without_gil([&] { return distributed::bind_to_cores(local_rank, local_size); }); });
}

}  // namespace neuron::bindings
