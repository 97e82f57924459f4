// How an operator of ATen is computed inside a fused region: a few nodes, with the rounding points that the operator has when it runs
// alone.
#pragma once

#include <optional>
#include <vector>

#include "compiler/program.h"
#include "kernels/vector/region.h"

namespace neuron::compiler {

struct RecipeArgument {
  ValueId value = kNoValue;  // a tensor that the instruction reads
  int node = -1;             // an earlier node of the recipe
  kernels::vector::Argument number;

  bool is_number() const { return value == kNoValue && node < 0; }
};

struct RecipeNode {
  kernels::vector::Op op;
  kernels::vector::Element type;
  std::vector<RecipeArgument> arguments;
  std::int64_t step = 0;  // kIota: along the result's only dimension
  std::int64_t start = 0;
};

struct Recipe {
  std::vector<std::int64_t> sizes;  // what the nodes extend over; operands are broadcast to it, aligned at the right
  bool uses_rows = false;           // has reductions or rotations, along the last of these dimensions
  std::vector<RecipeNode> nodes;
  std::vector<int> results;  // node of each result
};

// Nothing if the instruction is no element-wise operator, reduction over the last dimension, or composition of these, or if its operands
// are not plain tensors of the device.
std::optional<Recipe> recipe_of(const Program& program, const Instruction& instruction);

// The number that a value is filled with if the instruction makes such a tensor (full, scalar_tensor, zeros, ones).
std::optional<Argument> filled_number(const Instruction& instruction);

}  // namespace neuron::compiler
