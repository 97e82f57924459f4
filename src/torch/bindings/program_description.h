// A program as plain Python data, for reports.
#pragma once

#include <pybind11/pybind11.h>

#include "compiler/program.h"

namespace neuron::bindings {

// One dictionary per instruction: `opcode`, `text`, `operands` and `results` (tensors only: element type, sizes and bytes each), `views`
// (True if a result may share an operand's memory), `writes` (True if it changes an operand).
pybind11::list describe_instructions(const compiler::Program& program);

// `input_bytes`, `constant_bytes`, `peak_bytes`, `peak_instruction` of compiler/memory_estimate.h.
pybind11::dict describe_memory(const compiler::Program& program);

}  // namespace neuron::bindings
