// Makes the compiler's program of an AOT graph.
#include "torch/compile/program_builder.h"

#include "torch/compile/operator_info.h"
#include "torch/compile/torch_types.h"

namespace neuron::compile {

using compiler::Argument;
using compiler::ValueId;

ValueId ProgramBuilder::add_constant(at::Tensor tensor) {
  compiler::Type type = compiler::Type::of(compiler::Type::Kind::kObject);
  if (tensor.layout() == at::kStrided) {
    type = compiler::Type::of_tensor(
        {to_scalar_kind(tensor.scalar_type()), tensor.sizes().vec(), tensor.strides().vec(), to_place(tensor.device())});
  }
  objects_.constants.push_back(std::move(tensor));
  return program_.add_constant(std::move(type));
}

std::vector<ValueId> ProgramBuilder::append(compiler::Instruction instruction, const std::vector<compiler::Type>& results) {
  for (const compiler::Type& type : results) {
    instruction.results.push_back(program_.new_value(type));
  }
  program_.instructions.push_back(std::move(instruction));
  return program_.instructions.back().results;
}

std::vector<ValueId> ProgramBuilder::add_call(const std::string& opcode, std::vector<Argument> positional,
                                              std::vector<std::pair<std::string, Argument>> named,
                                              const std::vector<compiler::Type>& results) {
  const c10::OperatorHandle op = find_operator(opcode);
  compiler::Instruction instruction;
  instruction.opcode = opcode;
  instruction.operands = bind_operands(op.schema(), std::move(positional), std::move(named));
  instruction.effects = effects_of(op);
  instruction.inplace_opcode = inplace_variant_of(op);
  return append(std::move(instruction), results);
}

std::vector<ValueId> ProgramBuilder::add_external_call(const std::string& name, std::shared_ptr<const ExternalCall> call,
                                                       const std::vector<ValueId>& arguments, const std::vector<compiler::Type>& results) {
  compiler::Instruction instruction;
  instruction.opcode = "python::" + name;
  instruction.operands.push_back({Argument(compiler::Symbol{"object", std::to_string(objects_.calls.size())}), {}});
  objects_.calls.push_back(std::move(call));
  instruction.effects.ordered = true;
  for (const ValueId id : arguments) {
    // Nothing is known about it: it may hand back any of its arguments.
    instruction.effects.views.push_back(static_cast<int>(instruction.operands.size()));
    instruction.operands.push_back({Argument::value(id), {}});
  }
  return append(std::move(instruction), results);
}

}  // namespace neuron::compile
