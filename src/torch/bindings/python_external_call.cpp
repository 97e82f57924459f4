// A step of a program that calls a Python function.
#include "torch/bindings/python_external_call.h"

#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace neuron::bindings {

py::object to_python(const c10::IValue& value) {
  if (value.isTensor()) {
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(value.toTensor()));
  }
  if (value.isBool()) {
    return py::bool_(value.toBool());
  }
  if (value.isInt()) {
    return py::int_(value.toInt());
  }
  if (value.isDouble()) {
    return py::float_(value.toDouble());
  }
  TORCH_CHECK_TYPE(value.isNone(), "a compiled graph gave a value of type ", value.tagKind());
  return py::none();
}

c10::IValue from_python(py::handle object) {
  PyObject* raw = object.ptr();
  if (THPVariable_Check(raw)) {
    return THPVariable_Unpack(raw);
  }
  if (object.is_none()) {
    return {};
  }
  if (PyBool_Check(raw) != 0) {
    return raw == Py_True;
  }
  if (PyLong_Check(raw) != 0) {
    return object.cast<std::int64_t>();
  }
  if (PyFloat_Check(raw) != 0) {
    return PyFloat_AS_DOUBLE(raw);
  }
  if (PyObject_HasAttrString(raw, "__index__") != 0) {  // torch.SymInt
    return py::int_(py::reinterpret_borrow<py::object>(object)).cast<std::int64_t>();
  }
  throw py::type_error("a compiled graph takes tensors and numbers, not " + std::string(Py_TYPE(raw)->tp_name));
}

PythonExternalCall::~PythonExternalCall() {
  if (Py_IsInitialized() != 0) {
    const py::gil_scoped_acquire gil;
    function_ = py::object();
  } else {
    function_.release();
  }
}

std::vector<c10::IValue> PythonExternalCall::call(std::vector<c10::IValue> arguments) const {
  const py::gil_scoped_acquire gil;
  py::list values;
  for (c10::IValue& argument : arguments) {
    values.append(to_python(argument));
    argument = c10::IValue();
  }
  std::vector<c10::IValue> results;
  for (const py::handle result : function_(std::move(values))) {
    results.push_back(from_python(result));
  }
  return results;
}

}  // namespace neuron::bindings
