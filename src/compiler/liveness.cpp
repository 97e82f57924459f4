// Finds the last use of every value.
#include "compiler/liveness.h"

namespace neuron::compiler {

void plan_releases(Program& program) {
  std::vector<bool> kept(static_cast<std::size_t>(program.value_count()), false);
  const auto keep = [&kept](ValueId id) {
    const bool first = !kept[static_cast<std::size_t>(id)];
    kept[static_cast<std::size_t>(id)] = true;
    return first;
  };
  for (const Argument& output : program.outputs) {
    output.for_each_value(keep);
  }
  for (const ValueId id : program.constants()) {
    keep(id);
  }
  // Walking backwards, the first mention of a value is its last use.
  for (auto instruction = program.instructions.rbegin(); instruction != program.instructions.rend(); ++instruction) {
    instruction->releases.clear();
    for (ValueId& result : instruction->results) {
      if (result != kNoValue && !kept[static_cast<std::size_t>(result)]) {
        result = kNoValue;  // nobody reads it: it is not even stored
      }
    }
    for_each_operand_value(*instruction, [&](ValueId id) {
      if (keep(id)) {
        instruction->releases.push_back(id);
      }
    });
  }
  program.entry_releases.clear();
  for (const ValueId id : program.inputs()) {
    if (!kept[static_cast<std::size_t>(id)]) {
      program.entry_releases.push_back(id);
    }
  }
}

}  // namespace neuron::compiler
