// Finds the recipe of an instruction if its tensors are plain and the kernels offer every node of it.
#include "compiler/passes/recipes.h"

#include <algorithm>

#include "compiler/passes/recipe_builder.h"
#include "kernels/vector/kernel_table.h"

namespace neuron::compiler {
namespace {

using kernels::vector::Element;
using kernels::vector::Op;

// Plain tensors of the device, dense where they are results, and something to do.
bool is_plain(const Program& program, const Instruction& instruction) {
  if (!instruction.effects.writes.empty() || !instruction.effects.views.empty() || instruction.effects.ordered ||
      instruction.results.empty()) {
    return false;
  }
  const Place* place = nullptr;
  bool plain = true;
  const auto look_at = [&](ValueId id) {
    const Type& type = program.type_of(id);
    plain = plain && element_of(type).has_value();
    if (plain) {
      place = place == nullptr ? &type.tensor.place : place;
      plain = type.tensor.place == *place && type.tensor.element_count() > 0;
    }
  };
  for_each_operand_value(instruction, look_at);
  for (const Operand& operand : instruction.operands) {
    const auto* list = operand.value.get_if<Argument::List>();
    operand.value.for_each_value([&](ValueId) { plain = plain && list == nullptr; });
  }
  for (const ValueId id : instruction.results) {
    if (id == kNoValue) {
      return false;
    }
    look_at(id);
    if (plain) {
      const TensorType& type = program.type_of(id).tensor;
      for (std::size_t i = 0; i < type.sizes.size(); ++i) {
        plain = plain && (type.sizes[i] == 1 || type.strides[i] != 0);
      }
    }
  }
  return plain;
}

// Comparisons and tests run in the lane of their operands, everything else in that of the result.
bool is_offered(const Program& program, const Recipe& recipe, const RecipeNode& node) {
  auto lane = kernels::vector::lane_of(node.type);
  if (kernels::vector::is_comparison(node.op) || node.op == Op::kIsNan || node.op == Op::kNot) {
    for (const RecipeArgument& argument : node.arguments) {
      if (argument.node >= 0) {
        lane = kernels::vector::lane_of(recipe.nodes[static_cast<std::size_t>(argument.node)].type);
      } else if (argument.value != kNoValue) {
        lane = kernels::vector::lane_of(*element_of(program.type_of(argument.value)));
      }
    }
  }
  return kernels::vector::offers(node.op, lane);
}

}  // namespace

std::optional<Argument> filled_number(const Instruction& instruction) {
  const auto literal = [&](std::size_t index) -> std::optional<Argument> {
    const Argument& value = instruction.operands[index].value;
    const bool number = value.get_if<double>() != nullptr || value.get_if<std::int64_t>() != nullptr || value.get_if<bool>() != nullptr;
    return number ? std::optional(value) : std::nullopt;
  };
  const std::string& opcode = instruction.opcode;
  if (opcode == "aten::scalar_tensor") return literal(0);
  if (opcode == "aten::full" || opcode == "aten::full_like") return literal(1);
  if (opcode == "aten::zeros" || opcode == "aten::zeros_like") return Argument(std::int64_t{0});
  if (opcode == "aten::ones" || opcode == "aten::ones_like") return Argument(std::int64_t{1});
  return std::nullopt;
}

std::optional<Recipe> recipe_of(const Program& program, const Instruction& instruction) {
  if (!is_plain(program, instruction)) {
    return std::nullopt;
  }
  RecipeBuilder builder(program, instruction);
  // Factories read no tensor; other operators that do not are left alone.
  if (const auto number = filled_number(instruction)) {
    builder.over(builder.result().sizes, false);
    const Element type = builder.result_element();
    builder.give(RecipeBuilder::number(*number, type, true), type);
    return builder.take();
  }
  const bool counts = instruction.opcode.starts_with("aten::arange");
  if (!counts && operand_value(instruction, 0) == kNoValue && operand_value(instruction, 1) == kNoValue) {
    return std::nullopt;
  }
  if (build_row_recipe(instruction, builder) || (instruction.results.size() == 1 && build_elementwise_recipe(instruction, builder))) {
    Recipe recipe = builder.take();
    if (std::all_of(recipe.nodes.begin(), recipe.nodes.end(), [&](const RecipeNode& node) { return is_offered(program, recipe, node); })) {
      return recipe;
    }
  }
  return std::nullopt;
}

}  // namespace neuron::compiler
