// Turns functional updates of an input back into in-place writes.
#include "compiler/passes/reinplace.h"

#include <algorithm>
#include <optional>

#include "compiler/alias_sets.h"
#include "compiler/passes/dead_code.h"
#include "compiler/passes/queries.h"
#include "compiler/passes/view_store.h"

namespace neuron::compiler {
namespace {

bool overlaps_itself(const TensorType& type) {
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] > 1 && type.strides[i] == 0) {
      return true;
    }
  }
  return false;
}

class Reinplacer {
 public:
  explicit Reinplacer(Program& program) : program_(program), aliases_(program) {}

  int run() {
    int removed = 0;
    // Conversions replace and insert instructions; each starts again from the first final copy that was not looked at yet.
    std::vector<ValueId> done;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& copy = program_.instructions[i];
      const ValueId input = operand_value(copy, 0);
      const ValueId source = operand_value(copy, 1);
      if (copy.opcode != "aten::copy_" || source == kNoValue || !is_input(input) ||
          std::find(done.begin(), done.end(), input) != done.end()) {
        continue;
      }
      done.push_back(input);
      removed += convert_chain(input, source) ? 1 : 0;
      i = static_cast<std::size_t>(-1);  // positions changed
    }
    remove_dead_code(program_);
    return removed;
  }

 private:
  bool is_input(ValueId id) const { return std::find(program_.inputs().begin(), program_.inputs().end(), id) != program_.inputs().end(); }

  static bool is_copy_into(const Instruction& instruction, ValueId target) {
    return instruction.opcode == "aten::copy_" && operand_value(instruction, 0) == target;
  }

  std::optional<std::size_t> final_copy_of(ValueId input) const {
    for (std::size_t i = program_.instructions.size(); i-- > 0;) {
      if (is_copy_into(program_.instructions[i], input)) {
        return i;
      }
    }
    return std::nullopt;
  }

  // The updates that lead from the input to the value that is finally copied into it, first one first; empty if they do not.
  std::vector<ValueId> chain(ValueId input, ValueId final_value) const {
    std::vector<ValueId> updates;
    for (ValueId current = final_value; current != input;) {
      const auto position = definition_of(program_, current);
      if (!position || !is_update(program_.instructions[*position])) {
        return {};
      }
      updates.push_back(current);
      current = operand_value(program_.instructions[*position], 0);
    }
    std::reverse(updates.begin(), updates.end());
    return updates;
  }

  static bool is_update(const Instruction& instruction) {
    return instruction.results.size() == 1 && instruction.effects.writes.empty() && !instruction.effects.ordered &&
           operand_value(instruction, 0) != kNoValue && (!instruction.inplace_opcode.empty() || is_view_store(instruction));
  }

  bool convert_chain(ValueId input, ValueId final_value) {
    ValueId version = input;
    for (ValueId update : chain(input, final_value)) {
      const auto defined = definition_of(program_, update);
      const auto copy = final_copy_of(input);
      if (!defined || !copy) {
        return false;
      }
      if (may_convert(update, version, input, *defined, *defined)) {
        version = convert(update, version, *defined, *defined);
        final_value = update == final_value ? version : final_value;
      } else if (update == final_value && is_read_only_by(program_, update, *copy) &&
                 may_convert(update, version, input, *defined, *copy)) {
        convert(update, version, *defined, *copy);
        return true;  // the update stands where the copy was
      } else {
        return false;
      }
    }
    if (version == input && final_value != input) {
      return false;
    }
    const auto copy = final_copy_of(input);
    if (!copy) {
      return false;
    }
    replace_uses(program_.instructions[*copy].results, input);
    program_.instructions.erase(program_.instructions.begin() + static_cast<std::ptrdiff_t>(*copy));
    return true;
  }

  // May the update, defined at `defined`, write the memory of `version` at position `at`?
  bool may_convert(ValueId update, ValueId version, ValueId input, std::size_t defined, std::size_t at) const {
    const Instruction& instruction = program_.instructions[defined];
    const Type& type = program_.type_of(version);
    if (!type.is_tensor() || type != program_.type_of(update) || overlaps_itself(type.tensor)) {
      return false;
    }
    bool safe = true;
    for (std::size_t i = 1; i < instruction.operands.size(); ++i) {
      instruction.operands[i].value.for_each_value([&](ValueId other) {
        safe =
            safe && !aliases_.may_share(other, version) && (at == defined || !is_written_between(program_, aliases_, other, defined, at));
      });
    }
    safe = safe && (at == defined || !is_written_between(program_, aliases_, version, defined, at));
    for (std::size_t i = at + 1; i < program_.instructions.size() && safe; ++i) {
      const bool is_final_copy = is_copy_into(program_.instructions[i], input);
      bool first = true;
      for_each_operand_value(program_.instructions[i], [&](ValueId read) {
        safe = safe && ((is_final_copy && first) || !aliases_.may_share(read, version));
        first = false;
      });
    }
    for (const Argument& output : program_.outputs) {
      output.for_each_value([&](ValueId out) { safe = safe && !aliases_.may_share(out, version) && !aliases_.may_share(out, update); });
    }
    return safe;
  }

  // Rewrites the update to write `version` at position `at`, and says which value then stands for the updated memory.
  ValueId convert(ValueId update, ValueId version, std::size_t defined, std::size_t at) {
    Instruction instruction = program_.instructions[defined];
    std::vector<Instruction> replacement;
    ValueId now = update;
    if (is_view_store(instruction)) {
      ViewStore store(program_, aliases_, version, at);
      replacement = store.lower(instruction);
      now = version;
      replace_uses({update}, version);
    } else {
      instruction.opcode = std::exchange(instruction.inplace_opcode, {});
      instruction.effects.writes = {0};
      instruction.effects.views = {0};
      instruction.operands[0].value = Argument::value(version);
      aliases_.join(update, version);
      replacement = {std::move(instruction)};
    }
    auto& instructions = program_.instructions;
    instructions.erase(instructions.begin() + static_cast<std::ptrdiff_t>(at));
    instructions.insert(instructions.begin() + static_cast<std::ptrdiff_t>(at), replacement.begin(), replacement.end());
    if (defined != at) {
      instructions.erase(instructions.begin() + static_cast<std::ptrdiff_t>(defined));
    }
    return now;
  }

  void replace_uses(const std::vector<ValueId>& old, ValueId with) {
    const auto substitute = [&](ValueId& id) { id = std::find(old.begin(), old.end(), id) != old.end() && id != kNoValue ? with : id; };
    for (Instruction& instruction : program_.instructions) {
      for_each_operand_value(instruction, substitute);
    }
    for (Argument& output : program_.outputs) {
      output.for_each_value(substitute);
    }
  }

  Program& program_;
  AliasSets aliases_;
};

}  // namespace

int reinplace_input_updates(Program& program) { return Reinplacer(program).run(); }

}  // namespace neuron::compiler
