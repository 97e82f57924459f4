// Union-find over the views that instructions declare.
#include "compiler/alias_sets.h"

namespace neuron::compiler {

AliasSets::AliasSets(const Program& program) : parents_(static_cast<std::size_t>(program.value_count())) {
  std::iota(parents_.begin(), parents_.end(), 0);
  for (const Instruction& instruction : program.instructions) {
    for (const int index : instruction.effects.views) {
      if (index < 0 || index >= static_cast<int>(instruction.operands.size())) {
        continue;  // the verifier reports it
      }
      instruction.operands[static_cast<std::size_t>(index)].value.for_each_value([&](ValueId viewed) {
        for (const ValueId result : instruction.results) {
          if (result != kNoValue) {
            join(result, viewed);
          }
        }
      });
    }
  }
}

ValueId AliasSets::set_of(ValueId id) const {
  auto& parents = parents_;
  while (parents[static_cast<std::size_t>(id)] != id) {
    ValueId& parent = parents[static_cast<std::size_t>(id)];
    parent = parents[static_cast<std::size_t>(parent)];  // path halving
    id = parent;
  }
  return id;
}

void AliasSets::join(ValueId id, ValueId of) {
  while (static_cast<std::size_t>(id) >= parents_.size()) {
    parents_.push_back(static_cast<ValueId>(parents_.size()));
  }
  parents_[static_cast<std::size_t>(set_of(id))] = set_of(of);
}

}  // namespace neuron::compiler
