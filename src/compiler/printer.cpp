// Program to text.
#include "compiler/printer.h"

#include "compiler/region_text.h"

namespace neuron::compiler {
namespace {

std::string print_value(ValueId id) { return id == kNoValue ? "_" : "%" + std::to_string(id); }

template <typename Range, typename Print>
std::string join(const Range& range, Print&& print) {
  std::string text;
  for (const auto& element : range) {
    text += (text.empty() ? "" : ", ") + print(element);
  }
  return text;
}

std::string print_effect(const char* name, const std::vector<int>& operands) {
  if (operands.empty()) {
    return {};
  }
  return std::string(" ") + name + "(" + join(operands, [](int index) { return std::to_string(index); }) + ")";
}

}  // namespace

std::string to_string(const Instruction& instruction, const Program& program) {
  std::string text = instruction.results.empty() ? "" : join(instruction.results, print_value) + " = ";
  text += instruction.opcode + "(";
  text += join(instruction.operands,
               [](const Operand& operand) { return (operand.name.empty() ? "" : operand.name + "=") + to_string(operand.value); });
  text += ')';
  if (instruction.body) {
    text += " body=" + to_string(*instruction.body);
  }
  text += print_effect("writes", instruction.effects.writes);
  text += print_effect("views", instruction.effects.views);
  if (instruction.effects.ordered) {
    text += " ordered";
  }
  if (!instruction.inplace_opcode.empty()) {
    text += " inplace(" + instruction.inplace_opcode + ")";
  }
  if (!instruction.releases.empty()) {
    text += " releases(" + join(instruction.releases, print_value) + ")";
  }
  std::string types;
  for (const ValueId id : instruction.results) {
    if (id != kNoValue) {
      types += (types.empty() ? ": " : ", ") + to_string(program.type_of(id));
    }
  }
  return text + types;
}

std::string to_string(const Program& program) {
  std::string text = "program " + to_string(Argument(program.name())) + " {\n";
  for (const ValueId id : program.inputs()) {
    text += "  input " + print_value(id) + ": " + to_string(program.type_of(id)) + "\n";
  }
  for (const ValueId id : program.constants()) {
    text += "  constant " + print_value(id) + ": " + to_string(program.type_of(id)) + "\n";
  }
  if (!program.entry_releases.empty()) {
    text += "  release " + join(program.entry_releases, print_value) + "\n";
  }
  for (const Instruction& instruction : program.instructions) {
    text += "  " + to_string(instruction, program) + "\n";
  }
  text += "  return [" + join(program.outputs, [](const Argument& output) { return to_string(output); }) + "]\n";
  return text + "}\n";
}

}  // namespace neuron::compiler
