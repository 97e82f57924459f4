// Questions that passes ask about a program.
#include "compiler/passes/queries.h"

#include <algorithm>

namespace neuron::compiler {

std::optional<std::size_t> definition_of(const Program& program, ValueId id) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const auto& results = program.instructions[i].results;
    if (std::find(results.begin(), results.end(), id) != results.end()) {
      return i;
    }
  }
  return std::nullopt;
}

bool is_read_only_by(const Program& program, ValueId value, std::size_t reader) {
  bool only = true;
  for (std::size_t i = 0; i < program.instructions.size() && only; ++i) {
    for_each_operand_value(program.instructions[i], [&](ValueId read) { only = only && (read != value || i == reader); });
  }
  for (const Argument& output : program.outputs) {
    output.for_each_value([&](ValueId read) { only = only && read != value; });
  }
  return only;
}

bool is_written_between(const Program& program, const AliasSets& aliases, ValueId value, std::size_t first, std::size_t last) {
  for (std::size_t i = first + 1; i < last; ++i) {
    const Instruction& instruction = program.instructions[i];
    for (const int index : instruction.effects.writes) {
      bool written = false;
      instruction.operands[static_cast<std::size_t>(index)].value.for_each_value(
          [&](ValueId target) { written = written || aliases.may_share(target, value); });
      if (written) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace neuron::compiler
