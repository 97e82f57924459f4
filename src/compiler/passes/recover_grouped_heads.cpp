// Gives attention the key-value heads before their repetition.
#include "compiler/passes/recover_grouped_heads.h"

#include <vector>

#include "compiler/alias_sets.h"
#include "compiler/passes/dead_code.h"
#include "compiler/passes/queries.h"

namespace neuron::compiler {
namespace {

const Instruction* definition(const Program& program, ValueId id) {
  const auto index = id == kNoValue ? std::nullopt : definition_of(program, id);
  return index ? &program.instructions[*index] : nullptr;
}

// The tensor [b, h, s, d] whose heads `repeated` [b, h * r, s, d] repeats r times each, or kNoValue.
ValueId before_repetition(const Program& program, ValueId repeated) {
  const Instruction* reshape = definition(program, repeated);
  if (reshape == nullptr ||
      (reshape->opcode != "aten::_unsafe_view" && reshape->opcode != "aten::view" && reshape->opcode != "aten::reshape")) {
    return kNoValue;
  }
  const Instruction* clone = definition(program, operand_value(*reshape, 0));
  const Instruction* expand = clone != nullptr && clone->opcode == "aten::clone" ? definition(program, operand_value(*clone, 0)) : nullptr;
  const Instruction* insert =
      expand != nullptr && expand->opcode == "aten::expand" ? definition(program, operand_value(*expand, 0)) : nullptr;
  if (insert == nullptr || insert->opcode != "aten::unsqueeze") {
    return kNoValue;
  }
  const ValueId heads = operand_value(*insert, 0);
  const auto& few = program.type_of(heads).tensor.sizes;
  const auto& many = program.type_of(repeated).tensor.sizes;
  const auto& expanded = program.type_of(expand->results[0]).tensor.sizes;
  const bool matches = few.size() == 4 && many.size() == 4 && expanded.size() == 5 && few[0] == many[0] && few[2] == many[2] &&
                       few[3] == many[3] && expanded[0] == few[0] && expanded[1] == few[1] && expanded[3] == few[2] &&
                       expanded[4] == few[3] && many[1] == few[1] * expanded[2] && program.type_of(insert->results[0]).tensor.sizes[2] == 1;
  return matches ? heads : kNoValue;
}

}  // namespace

int recover_grouped_heads(Program& program) {
  const AliasSets aliases(program);
  int replaced = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& attention = program.instructions[i];
    if (attention.opcode != "aten::_scaled_dot_product_flash_attention_for_cpu") {
      continue;
    }
    const ValueId keys = before_repetition(program, operand_value(attention, 1));
    const ValueId values = before_repetition(program, operand_value(attention, 2));
    if (keys == kNoValue || values == kNoValue || program.type_of(keys).tensor.sizes[1] != program.type_of(values).tensor.sizes[1]) {
      continue;
    }
    // The repetition read the tensor where the copy was made.
    bool unchanged = true;
    for (const auto& [repeated, heads] : {std::pair{operand_value(attention, 1), keys}, std::pair{operand_value(attention, 2), values}}) {
      const Instruction* reshape = definition(program, repeated);
      const auto copied = definition_of(program, operand_value(*reshape, 0));
      unchanged = unchanged && !is_written_between(program, aliases, heads, *copied, i);
    }
    if (unchanged) {
      attention.operands[1].value = Argument::value(keys);
      attention.operands[2].value = Argument::value(values);
      replaced += 2;
    }
  }
  if (replaced > 0) {
    remove_dead_code(program);
  }
  return replaced;
}

}  // namespace neuron::compiler
