// Removes instructions whose results nobody reads.
#include "compiler/passes/dead_code.h"

#include <algorithm>

namespace neuron::compiler {

int remove_dead_code(Program& program) {
  std::vector<bool> read(static_cast<std::size_t>(program.value_count()), false);
  const auto mark = [&read](ValueId id) { read[static_cast<std::size_t>(id)] = true; };
  for (const Argument& output : program.outputs) {
    output.for_each_value(mark);
  }
  std::vector<Instruction> kept;
  for (auto instruction = program.instructions.rbegin(); instruction != program.instructions.rend(); ++instruction) {
    const bool acts = instruction->effects.ordered || !instruction->effects.writes.empty() || instruction->results.empty();
    const bool needed = std::any_of(instruction->results.begin(), instruction->results.end(),
                                    [&read](ValueId id) { return id != kNoValue && read[static_cast<std::size_t>(id)]; });
    if (acts || needed) {
      for_each_operand_value(*instruction, mark);
      kept.push_back(std::move(*instruction));
    }
  }
  std::reverse(kept.begin(), kept.end());
  const int removed = static_cast<int>(program.instructions.size() - kept.size());
  program.instructions = std::move(kept);
  return removed;
}

}  // namespace neuron::compiler
