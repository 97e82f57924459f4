// Computes equal things once.
#include "compiler/passes/common_subexpressions.h"

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "compiler/alias_sets.h"
#include "compiler/passes/queries.h"

namespace neuron::compiler {
namespace {

class Merger {
 public:
  explicit Merger(Program& program) : program_(program), aliases_(program), stands_for_(static_cast<std::size_t>(program.value_count())) {
    for (ValueId id = 0; id < program.value_count(); ++id) {
      stands_for_[static_cast<std::size_t>(id)] = id;
    }
    for (const Argument& output : program.outputs) {
      output.for_each_value([this](ValueId id) { pin(id); });
    }
    for (const Instruction& instruction : program.instructions) {
      for (const int index : instruction.effects.writes) {
        instruction.operands[static_cast<std::size_t>(index)].value.for_each_value([this](ValueId id) { pin(id); });
      }
    }
  }

  int run() {
    std::unordered_map<std::string, std::size_t> seen;  // key -> index of the instruction
    std::vector<bool> dropped(program_.instructions.size(), false);
    int count = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction& instruction = program_.instructions[i];
      for_each_operand_value(instruction, [this](ValueId& id) { id = stands_for_[static_cast<std::size_t>(id)]; });
      if (!may_merge(instruction)) {
        continue;
      }
      const auto [entry, first_seen] = seen.try_emplace(key_of(instruction), i);
      if (first_seen) {
        continue;
      }
      if (operands_changed_between(instruction, entry->second, i)) {
        entry->second = i;  // the newer one serves from here on
        continue;
      }
      const Instruction& earlier = program_.instructions[entry->second];
      for (std::size_t result = 0; result < instruction.results.size(); ++result) {
        stands_for_[static_cast<std::size_t>(instruction.results[result])] = earlier.results[result];
      }
      dropped[i] = true;
      ++count;
    }
    std::vector<Instruction> kept;
    for (std::size_t i = 0; i < dropped.size(); ++i) {
      if (!dropped[i]) {
        kept.push_back(std::move(program_.instructions[i]));
      }
    }
    program_.instructions = std::move(kept);
    return count;
  }

 private:
  // Everything that may share memory with the value has to stay its own.
  void pin(ValueId value) { pinned_.insert(aliases_.set_of(value)); }

  bool may_merge(const Instruction& instruction) const {
    if (!instruction.effects.writes.empty() || instruction.effects.ordered || instruction.results.empty()) {
      return false;
    }
    for (const ValueId result : instruction.results) {
      if (result == kNoValue || pinned_.contains(aliases_.set_of(result))) {
        return false;
      }
    }
    return true;
  }

  static std::string key_of(const Instruction& instruction) {
    std::string key = instruction.opcode;
    for (const Operand& operand : instruction.operands) {
      key += '|' + to_string(operand.value);
    }
    return key;
  }

  bool operands_changed_between(const Instruction& instruction, std::size_t first, std::size_t last) const {
    bool changed = false;
    for_each_operand_value(instruction, [&](ValueId id) { changed = changed || is_written_between(program_, aliases_, id, first, last); });
    return changed;
  }

  Program& program_;
  AliasSets aliases_;
  std::unordered_set<ValueId> pinned_;  // sets of values
  std::vector<ValueId> stands_for_;
};

}  // namespace

int merge_common_subexpressions(Program& program) { return Merger(program).run(); }

}  // namespace neuron::compiler
