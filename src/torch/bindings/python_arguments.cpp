// Arguments and types of graph nodes, from Python to the compiler's terms.
#include "torch/bindings/python_arguments.h"

#include <pybind11/stl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>

#include <string>

#include "torch/compile/torch_types.h"

namespace py = pybind11;

namespace neuron::bindings {

using compiler::Argument;

Argument argument_from_python(py::handle object) {
  PyObject* raw = object.ptr();
  if (object.is_none()) {
    return {};
  }
  if (py::isinstance<PythonValue>(object)) {
    return Argument::value(object.cast<const PythonValue&>().id);
  }
  if (PyBool_Check(raw) != 0) {
    return Argument(raw == Py_True);
  }
  if (PyLong_Check(raw) != 0) {
    return Argument(object.cast<std::int64_t>());
  }
  if (PyFloat_Check(raw) != 0) {
    return Argument(PyFloat_AS_DOUBLE(raw));
  }
  if (PyComplex_Check(raw) != 0) {
    return Argument(std::complex<double>(PyComplex_RealAsDouble(raw), PyComplex_ImagAsDouble(raw)));
  }
  if (PyUnicode_Check(raw) != 0) {
    return Argument(object.cast<std::string>());
  }
  if (THPDtype_Check(raw)) {
    return Argument(compile::dtype_symbol(reinterpret_cast<THPDtype*>(raw)->scalar_type));
  }
  if (THPDevice_Check(raw)) {
    return Argument(compile::device_symbol(reinterpret_cast<THPDevice*>(raw)->device));
  }
  if (THPLayout_Check(raw)) {
    return Argument(compile::layout_symbol(reinterpret_cast<THPLayout*>(raw)->layout));
  }
  if (THPMemoryFormat_Check(raw)) {
    return Argument(compile::memory_format_symbol(reinterpret_cast<THPMemoryFormat*>(raw)->memory_format));
  }
  if (PyList_Check(raw) != 0 || PyTuple_Check(raw) != 0) {
    Argument::List list;
    for (const py::handle item : object) {
      list.push_back(argument_from_python(item));
    }
    return Argument(std::move(list));
  }
  throw py::type_error("cannot hand over an argument of type " + std::string(Py_TYPE(raw)->tp_name));
}

compiler::Type type_from_python(py::handle object) {
  if (py::isinstance<py::str>(object)) {
    const auto name = object.cast<std::string>();
    for (const auto kind :
         {compiler::Type::Kind::kInt, compiler::Type::Kind::kFloat, compiler::Type::Kind::kBool, compiler::Type::Kind::kObject}) {
      if (compiler::to_string(compiler::Type::of(kind)) == name) {
        return compiler::Type::of(kind);
      }
    }
    throw py::value_error("'" + name + "' is no type");
  }
  const auto parts = object.cast<py::tuple>();
  if (parts.size() != 4 || !THPDtype_Check(parts[0].ptr()) || !THPDevice_Check(parts[3].ptr())) {
    throw py::type_error("a tensor type is (dtype, sizes, strides, device)");
  }
  return compiler::Type::of_tensor({compile::to_scalar_kind(reinterpret_cast<THPDtype*>(parts[0].ptr())->scalar_type),
                                    parts[1].cast<std::vector<std::int64_t>>(), parts[2].cast<std::vector<std::int64_t>>(),
                                    compile::to_place(reinterpret_cast<THPDevice*>(parts[3].ptr())->device)});
}

}  // namespace neuron::bindings
