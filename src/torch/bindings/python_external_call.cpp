// A step of a program that calls a Python function.
#include "torch/bindings/python_external_call.h"

#include <torch/csrc/autograd/python_variable.h>

namespace py = pybind11;

namespace neuron::bindings {

namespace {

// A Python object that passes through a program untouched.
class OpaqueObject final : public c10::ivalue::PyObjectHolder {
 public:
  explicit OpaqueObject(py::object object) : object_(std::move(object)) {}
  ~OpaqueObject() override {
    const py::gil_scoped_acquire gil;
    object_ = py::object();
  }

  PyObject* getPyObject() override { return object_.ptr(); }
  c10::InferredType tryToInferType() override { return c10::InferredType("an opaque object"); }
  c10::IValue toIValue(const c10::TypePtr& /*type*/, std::optional<int32_t> /*repeat*/) override { refuse(); }
  std::string toStr() override { return "an opaque object"; }
  std::vector<at::Tensor> extractTensors() override { return {}; }

 private:
  [[noreturn]] static void refuse() { TORCH_CHECK_TYPE(false, "an opaque Python object reached an operator of the dispatcher"); }

  py::object object_;
};

}  // namespace

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
  if (value.isPyObject()) {
    return py::reinterpret_borrow<py::object>(value.toPyObject());
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
  // Process groups and the like: only steps that call Python look at them.
  return c10::IValue(
      c10::intrusive_ptr<c10::ivalue::PyObjectHolder>(c10::make_intrusive<OpaqueObject>(py::reinterpret_borrow<py::object>(object))));
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
