// Makes one view of a chain of views.
#include "compiler/passes/fold_views.h"

#include <unordered_set>

#include "compiler/alias_sets.h"
#include "compiler/passes/dead_code.h"
#include "compiler/passes/view_maps.h"

namespace neuron::compiler {

int fold_views(Program& program) {
  const AliasSets aliases(program);
  const ViewMaps views(program);
  std::unordered_set<ValueId> closed;  // sets that are written or leave
  for (const Argument& output : program.outputs) {
    output.for_each_value([&](ValueId id) { closed.insert(aliases.set_of(id)); });
  }
  for (const Instruction& instruction : program.instructions) {
    for (const int index : instruction.effects.writes) {
      instruction.operands[static_cast<std::size_t>(index)].value.for_each_value([&](ValueId id) { closed.insert(aliases.set_of(id)); });
    }
  }
  std::vector<Instruction> folded = program.instructions;
  int count = 0;
  for (std::size_t i = 0; i < folded.size(); ++i) {
    if (!ViewMaps::is_view(folded[i]) || folded[i].results[0] == kNoValue) {
      continue;
    }
    const ValueId view = folded[i].results[0];
    const ViewMaps::Root root = views.root(view);
    if (root.value == view || root.value == operand_value(folded[i], 0) || closed.contains(aliases.set_of(view))) {
      continue;
    }
    Instruction single;
    single.opcode = kView;
    single.operands = {{Argument::value(root.value), {}}, {Argument(root.offset), {}}};
    single.results = {view};
    single.effects.views = {0};
    folded[i] = std::move(single);
    ++count;
  }
  program.instructions = std::move(folded);
  if (count > 0) {
    remove_dead_code(program);
  }
  return count;
}

}  // namespace neuron::compiler
