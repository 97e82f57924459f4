// Recipes of operators that go along the last dimension: reductions, softmax, layer norm, and the rotation of rotary embeddings.
#include "compiler/passes/recipe_builder.h"

namespace neuron::compiler {
namespace {

using kernels::vector::Element;
using kernels::vector::Op;

Element wide(Element type) { return type == Element::kF64 ? Element::kF64 : Element::kF32; }
bool is_float(Element type) { return type == Element::kF32 || type == Element::kBF16 || type == Element::kF16 || type == Element::kF64; }

// Whether the argument names the last of `rank` dimensions, alone.
bool is_last(const Argument& argument, std::size_t rank) {
  const Argument* dim = &argument;
  if (const auto* list = argument.get_if<Argument::List>()) {
    if (list->size() != 1) {
      return false;
    }
    dim = &list->front();
  }
  const auto* number = dim->get_if<std::int64_t>();
  return number != nullptr && (*number == -1 || *number + 1 == static_cast<std::int64_t>(rank));
}

double row_size(const TensorType& type) { return static_cast<double>(type.sizes.back()); }

bool build_reduction(const std::string& opcode, RecipeBuilder& b) {
  const bool sum = opcode == "aten::sum.dim_IntList";
  const bool mean = opcode == "aten::mean.dim";
  const bool amax = opcode == "aten::amax";
  if (!sum && !mean && !amax && opcode != "aten::amin") {
    return false;
  }
  const Element type = b.result_element();
  const Element in = *b.element(0);
  if (!is_last(b.operand(1), b.tensor(0).sizes.size()) || (mean && !is_float(type)) || (!sum && !mean && in != type) ||
      type == Element::kBool) {
    return false;
  }
  if (sum || mean) {
    // Sums of 16-bit numbers are rounded once.
    const Element accumulator = is_float(type) ? wide(type) : Element::kI64;
    if (!is_float(type) && type != Element::kI64) {
      return false;
    }
    RecipeArgument total = b.add(Op::kSum, accumulator, {b.as(0, accumulator)});
    if (mean) {
      total = b.add(Op::kDivide, accumulator, {total, RecipeBuilder::number(row_size(b.tensor(0)))});
    }
    b.give(b.cast(total, accumulator, type), type);
  } else {
    b.give(b.add(amax ? Op::kAmax : Op::kAmin, type, {b.as(0, type)}), type);
  }
  return true;
}

// exp(x - max) / sum, and x - max - log(sum): in float32, rounded at the end.
bool build_softmax(const std::string& opcode, RecipeBuilder& b) {
  const bool logarithm = opcode == "aten::_log_softmax";
  if (!logarithm && opcode != "aten::_softmax") {
    return false;
  }
  const Element type = b.result_element();
  const auto* half_to_float = b.operand(2).get_if<bool>();
  if (!is_last(b.operand(1), b.tensor(0).sizes.size()) || !is_float(type) || half_to_float == nullptr || *half_to_float ||
      *b.element(0) != type) {
    return false;
  }
  const Element w = wide(type);
  const RecipeArgument x = b.as(0, w);
  const RecipeArgument shifted = b.add(Op::kSubtract, w, {x, b.add(Op::kAmax, w, {b.as(0, w)})});
  const RecipeArgument exponentials = b.add(Op::kExp, w, {shifted});
  const RecipeArgument total = b.add(Op::kSum, w, {exponentials});
  const RecipeArgument result =
      logarithm ? b.add(Op::kSubtract, w, {shifted, b.add(Op::kLog, w, {total})}) : b.add(Op::kDivide, w, {exponentials, total});
  b.give(b.cast(result, w, type), type);
  return true;
}

// (gradient, output, dim, input type)
bool build_softmax_gradient(const std::string& opcode, RecipeBuilder& b) {
  const bool logarithm = opcode == "aten::_log_softmax_backward_data";
  if (!logarithm && opcode != "aten::_softmax_backward_data") {
    return false;
  }
  const Element type = b.result_element();
  if (!is_last(b.operand(2), b.tensor(0).sizes.size()) || !is_float(type) || *b.element(0) != type || *b.element(1) != type) {
    return false;
  }
  const Element w = wide(type);
  const RecipeArgument gradient = b.as(0, w);
  const RecipeArgument output = b.as(1, w);
  RecipeArgument result;
  if (logarithm) {
    const RecipeArgument total = b.add(Op::kSum, w, {gradient});
    result = b.add(Op::kSubtract, w, {gradient, b.add(Op::kMultiply, w, {b.add(Op::kExp, w, {output}), total})});
  } else {
    const RecipeArgument total = b.add(Op::kSum, w, {b.add(Op::kMultiply, w, {gradient, output})});
    result = b.add(Op::kMultiply, w, {b.add(Op::kSubtract, w, {gradient, total}), output});
  }
  b.give(b.cast(result, w, type), type);
  return true;
}

// (input, normalized_shape, weight, bias, eps) -> (output, mean, 1 / deviation)
bool build_layer_norm(RecipeBuilder& b) {
  const auto* shape = b.operand(1).get_if<Argument::List>();
  const auto* epsilon = b.operand(4).get_if<double>();
  const Element type = b.result_element(0);
  if (shape == nullptr || shape->size() != 1 || epsilon == nullptr || !is_float(type) || *b.element(0) != type) {
    return false;
  }
  const Element w = wide(type);
  // Traces promise float32 statistics of 16-bit tensors, but the CPU's gradient wants those that its own kernel makes.
  if (w != type && (b.is_read(1) || b.is_read(2))) {
    return false;
  }
  const RecipeArgument count = RecipeBuilder::number(row_size(b.tensor(0)));
  const RecipeArgument x = b.as(0, w);
  const RecipeArgument mean = b.add(Op::kDivide, w, {b.add(Op::kSum, w, {b.as(0, w)}), count});
  const RecipeArgument centered = b.add(Op::kSubtract, w, {x, mean});
  const RecipeArgument variance = b.add(Op::kDivide, w, {b.add(Op::kSum, w, {b.add(Op::kSquare, w, {centered})}), count});
  const RecipeArgument inverse = b.add(Op::kRsqrt, w, {b.add(Op::kAdd, w, {variance, RecipeBuilder::number(*epsilon)})});
  RecipeArgument result = b.add(Op::kMultiply, w, {centered, inverse});
  for (std::size_t i = 2; i < 4; ++i) {
    if (b.is_tensor(i)) {
      result = b.add(i == 2 ? Op::kMultiply : Op::kAdd, w, {result, b.as(i, w)});
    }
  }
  b.give(b.cast(result, w, type), type);
  b.give(b.cast(mean, w, b.result_element(1)), b.result_element(1));
  b.give(b.cast(inverse, w, b.result_element(2)), b.result_element(2));
  return true;
}

bool build_rotation(const std::string& opcode, RecipeBuilder& b) {
  const bool back = opcode == "neuron::rotate_half_back";
  if (!back && opcode != "neuron::rotate_half") {
    return false;
  }
  const Element type = b.result_element();
  b.give(b.add(back ? Op::kRotateHalfBack : Op::kRotateHalf, type, {b.as(0, type)}), type);
  return true;
}

}  // namespace

bool build_row_recipe(const Instruction& instruction, RecipeBuilder& b) {
  // The last dimension must be one of several elements, or the region has none to go along.
  if (!b.is_tensor(0) || b.tensor(0).sizes.empty() || b.tensor(0).sizes.back() < 2) {
    return false;
  }
  b.over(b.tensor(0).sizes, true);
  if (instruction.opcode == "aten::native_layer_norm") {
    return instruction.results.size() == 3 && build_layer_norm(b);
  }
  if (instruction.results.size() != 1) {
    return false;
  }
  return build_reduction(instruction.opcode, b) || build_softmax(instruction.opcode, b) || build_softmax_gradient(instruction.opcode, b) ||
         build_rotation(instruction.opcode, b);
}

}  // namespace neuron::compiler
