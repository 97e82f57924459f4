// Arguments and types of graph nodes as Python gives them, in the compiler's terms.
#pragma once

#include <pybind11/pybind11.h>

#include "compiler/argument.h"
#include "compiler/type.h"

namespace neuron::bindings {

// What stands for a value of the program inside Python's argument trees.
struct PythonValue {
  compiler::ValueId id = compiler::kNoValue;
};

// None, bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, Value, and lists or tuples of these.
// Anything else is a TypeError.
compiler::Argument argument_from_python(pybind11::handle object);

// (dtype, sizes, strides, device) for a tensor; "int", "float", "bool" or "object".
compiler::Type type_from_python(pybind11::handle object);

}  // namespace neuron::bindings
