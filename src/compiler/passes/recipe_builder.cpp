// Numbers of recipes, and who reads a result.
#include "compiler/passes/recipe_builder.h"

#include <bit>
#include <cmath>

namespace neuron::compiler {
namespace {

using kernels::vector::Element;
using kernels::vector::Lane;
using kernels::vector::lane_of;

double round_number(double value, Element type) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case Element::kF32:
      return single;
    case Element::kF16:
      return static_cast<double>(static_cast<float>(static_cast<_Float16>(single)));
    case Element::kBF16: {
      if (std::isnan(single)) {
        return single;
      }
      const auto bits = std::bit_cast<std::uint32_t>(single);
      return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
    }
    default:
      return value;
  }
}

}  // namespace

RecipeArgument RecipeBuilder::number(const Argument& literal, Element type, bool rounded) {
  double real = 0;
  std::int64_t integer = 0;
  if (const auto* value = literal.get_if<double>()) {
    real = *value;
    integer = std::isfinite(real) ? static_cast<std::int64_t>(real) : 0;
  } else if (const auto* whole = literal.get_if<std::int64_t>()) {
    integer = *whole;
    real = static_cast<double>(integer);
  } else if (const auto* flag = literal.get_if<bool>()) {
    integer = *flag ? 1 : 0;
    real = static_cast<double>(integer);
  }
  RecipeArgument argument;
  argument.number = lane_of(type) == Lane::kInteger ? kernels::vector::Argument::of_integer(integer)
                                                    : kernels::vector::Argument::of_number(rounded ? round_number(real, type) : real);
  return argument;
}

bool RecipeBuilder::is_read(std::size_t result) const {
  bool found = false;
  const auto look = [&](ValueId id) { found = found || id == instruction_.results[result]; };
  for (const Instruction& instruction : program_.instructions) {
    for_each_operand_value(instruction, look);
  }
  for (const Argument& output : program_.outputs) {
    output.for_each_value(look);
  }
  return found;
}

}  // namespace neuron::compiler
