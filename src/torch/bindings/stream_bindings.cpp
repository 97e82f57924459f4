// Python bindings of the current stream of a thread. Streams and events themselves are torch.Stream and torch.Event, which reach the
// runtime through the device guard.
#include <c10/core/DeviceType.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Event.h>

#include <cstdint>

#include "runtime/current_device.h"
#include "runtime/runtime.h"
#include "runtime/stream.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/python_call.h"
#include "torch/device/initialize.h"

namespace neuron::bindings {
namespace {

using runtime::Runtime;
using runtime::Stream;

// Streams exist once the device is in use; asking for one is a use.
runtime::StreamRegistry& streams() {
  device::initialize_device();
  return Runtime::instance().streams();
}

void set_stream(int device, std::int64_t id) {
  streams().set_current_stream(Stream{device, id});
  runtime::set_device(device);
}

void synchronize_device(int device) {
  Runtime& runtime = Runtime::instance();
  if (runtime.in_bad_fork()) {
    device::initialize_device();  // throws, with the advice that belongs to it
  }
  if (runtime.initialized()) {
    runtime.streams().synchronize_device(device);
  }
}

// torch.Event.elapsed_time insists on the exact type torch.Event, which our subclass is not.
double elapsed_time(const pybind11::object& start, const pybind11::object& end) {
  return with_gil([&] {
    TORCH_CHECK_TYPE(THPEvent_Check(start.ptr()) && THPEvent_Check(end.ptr()), "expected the end of a time span to be a torch.Event");
    return reinterpret_cast<THPEvent*>(start.ptr())->event.elapsedTime(reinterpret_cast<THPEvent*>(end.ptr())->event);
  });
}

}  // namespace

void register_stream_bindings(pybind11::module_& m) {
  m.attr("DEVICE_TYPE") = static_cast<int>(c10::DeviceType::PrivateUse1);
  m.def("current_stream", [](int device) { return without_gil([&] { return streams().current_stream(device).id; }); });
  m.def("default_stream", [](int device) { return without_gil([&] { return streams().default_stream(device).id; }); });
  m.def("set_stream", [](int device, std::int64_t id) { without_gil([&] { set_stream(device, id); }); });
  m.def("stream_priority", [](int device, std::int64_t id) { return without_gil([&] { return streams().priority(Stream{device, id}); }); });
  m.def("elapsed_time", &elapsed_time);
  m.def("synchronize", [](int device) { without_gil([&] { synchronize_device(device); }); });
}

}  // namespace neuron::bindings
