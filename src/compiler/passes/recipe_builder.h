// Puts a recipe together node by node; what the functions in recipes*.cpp are written with.
#pragma once

#include <optional>
#include <utility>

#include "compiler/passes/recipes.h"
#include "compiler/region_text.h"

namespace neuron::compiler {

class RecipeBuilder {
 public:
  using Element = kernels::vector::Element;
  using Op = kernels::vector::Op;

  RecipeBuilder(const Program& program, const Instruction& instruction) : program_(program), instruction_(instruction) {}

  // --- the instruction ---
  std::size_t operand_count() const { return instruction_.operands.size(); }
  const Argument& operand(std::size_t index) const { return instruction_.operands[index].value; }
  bool is_tensor(std::size_t index) const { return operand_value(instruction_, index) != kNoValue; }
  const TensorType& tensor(std::size_t index) const { return program_.type_of(operand_value(instruction_, index)).tensor; }
  std::optional<Element> element(std::size_t index) const { return element_of(program_.type_of(operand_value(instruction_, index))); }
  const TensorType& result(std::size_t index = 0) const { return program_.type_of(instruction_.results[index]).tensor; }
  Element result_element(std::size_t index = 0) const { return *element_of(program_.type_of(instruction_.results[index])); }

  bool is_read(std::size_t result) const;

  // --- operands as arguments ---
  // The tensor or number at `index` in the given type; numbers as PyTorch would put them into a tensor of that type.
  RecipeArgument as(std::size_t index, Element type) {
    if (!is_tensor(index)) {
      return number(operand(index), type, /*rounded=*/true);
    }
    RecipeArgument argument;
    argument.value = operand_value(instruction_, index);
    return *element(index) == type ? argument : add(Op::kCopy, type, {argument});
  }
  // A number with all its digits, as kernels that compute in float32 take it.
  RecipeArgument exact(std::size_t index, Element type) {
    return is_tensor(index) ? as(index, type) : number(operand(index), type, /*rounded=*/false);
  }
  static RecipeArgument number(const Argument& literal, Element type, bool rounded);
  static RecipeArgument number(double value) {
    RecipeArgument argument;
    argument.number = kernels::vector::Argument::of_number(value);
    return argument;
  }

  // --- nodes ---
  RecipeArgument add(Op op, Element type, std::vector<RecipeArgument> arguments) {
    recipe_.nodes.push_back({op, type, std::move(arguments)});
    return node(static_cast<int>(recipe_.nodes.size()) - 1);
  }
  RecipeNode& last() { return recipe_.nodes.back(); }
  static RecipeArgument node(int index) {
    RecipeArgument argument;
    argument.node = index;
    return argument;
  }
  RecipeArgument cast(RecipeArgument argument, Element from, Element to) { return from == to ? argument : add(Op::kCopy, to, {argument}); }

  // --- the end ---
  // The argument becomes the next result; one that is no node yet is copied.
  void give(const RecipeArgument& argument, Element type) {
    recipe_.results.push_back(argument.node >= 0 ? argument.node : add(Op::kCopy, type, {argument}).node);
  }
  void over(std::vector<std::int64_t> sizes, bool uses_rows) {
    recipe_.sizes = std::move(sizes);
    recipe_.uses_rows = uses_rows;
  }
  Recipe take() { return std::move(recipe_); }

 private:
  const Program& program_;
  const Instruction& instruction_;
  Recipe recipe_;
};

// In recipes_elementwise.cpp: one result of operands' elements. False if the instruction is none of them or cannot be done.
bool build_elementwise_recipe(const Instruction& instruction, RecipeBuilder& builder);

// In recipes_rows.cpp: reductions, softmax, layer norm, rotations. False if the instruction is none of them or cannot be done.
bool build_row_recipe(const Instruction& instruction, RecipeBuilder& builder);

}  // namespace neuron::compiler
