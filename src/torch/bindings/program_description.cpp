// Instructions, types and memory of a program for Python.
#include "torch/bindings/program_description.h"

#include <pybind11/stl.h>

#include <string>

#include "compiler/memory_estimate.h"
#include "compiler/printer.h"

namespace py = pybind11;

namespace neuron::bindings {
namespace {

void append_tensor(py::list& list, const compiler::Type& type) {
  if (type.is_tensor()) {
    list.append(py::make_tuple(std::string(compiler::name_of(type.tensor.scalar)), type.tensor.sizes, compiler::bytes_of(type)));
  }
}

}  // namespace

py::list describe_instructions(const compiler::Program& program) {
  py::list result;
  for (const compiler::Instruction& instruction : program.instructions) {
    py::list operands;
    compiler::for_each_operand_value(instruction, [&](compiler::ValueId id) { append_tensor(operands, program.type_of(id)); });
    py::list results;
    for (const compiler::ValueId id : instruction.results) {
      if (id != compiler::kNoValue) {
        append_tensor(results, program.type_of(id));
      }
    }
    py::dict entry;
    entry["opcode"] = instruction.opcode;
    entry["text"] = compiler::to_string(instruction, program);
    entry["operands"] = std::move(operands);
    entry["results"] = std::move(results);
    entry["views"] = !instruction.effects.views.empty();
    entry["writes"] = !instruction.effects.writes.empty();
    result.append(std::move(entry));
  }
  return result;
}

py::dict describe_memory(const compiler::Program& program) {
  const compiler::MemoryEstimate estimate = compiler::estimate_memory(program);
  py::dict result;
  result["input_bytes"] = estimate.input_bytes;
  result["constant_bytes"] = estimate.constant_bytes;
  result["peak_bytes"] = estimate.peak_bytes;
  result["peak_instruction"] = estimate.peak_instruction;
  return result;
}

}  // namespace neuron::bindings
