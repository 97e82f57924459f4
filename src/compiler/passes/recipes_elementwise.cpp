// Recipes of element-wise operators: tables of plain ones, functions for those with a mind of their own.
#include <algorithm>
#include <array>
#include <string_view>

#include "compiler/passes/recipe_builder.h"
#include "kernels/vector/kernel_table.h"

namespace neuron::compiler {
namespace {

using kernels::vector::Element;
using kernels::vector::Lane;
using kernels::vector::lane_of;
using kernels::vector::Op;

struct Entry {
  std::string_view opcode;
  Op op;
};

// Float results; integers are cast to float32 first.
constexpr std::array kFloatFunctions{
    Entry{"aten::exp", Op::kExp},
    Entry{"aten::log", Op::kLog},
    Entry{"aten::sqrt", Op::kSqrt},
    Entry{"aten::rsqrt", Op::kRsqrt},
    Entry{"aten::reciprocal", Op::kReciprocal},
    Entry{"aten::tanh", Op::kTanh},
    Entry{"aten::sigmoid", Op::kSigmoid},
    Entry{"aten::silu", Op::kSilu},
    Entry{"aten::erf", Op::kErf},
    Entry{"aten::sin", Op::kSin},
    Entry{"aten::cos", Op::kCos},
    Entry{"aten::exp2", Op::kExp2},
    Entry{"aten::log2", Op::kLog2},
    Entry{"aten::log1p", Op::kLog1p},
    Entry{"aten::expm1", Op::kExpm1},
};
// Results of the operand's type.
constexpr std::array kSameType{
    Entry{"aten::neg", Op::kNegate},     Entry{"aten::abs", Op::kAbs},   Entry{"aten::relu", Op::kRelu},
    Entry{"aten::floor", Op::kFloor},    Entry{"aten::ceil", Op::kCeil}, Entry{"aten::round", Op::kRound},
    Entry{"aten::trunc", Op::kTruncate}, Entry{"aten::sign", Op::kSign},
};
// Casts and copies of operand 0.
constexpr std::array<std::string_view, 3> kCopies{"aten::_to_copy", "aten::clone", "prims::convert_element_type"};
// (gradient, input or output), float types.
constexpr std::array kGradients{
    Entry{"aten::silu_backward", Op::kSiluBackward},
    Entry{"aten::tanh_backward", Op::kTanhBackward},
    Entry{"aten::sigmoid_backward", Op::kSigmoidBackward},
};
// A Python number is rounded to the tensor's type before a sum, and taken as it is by products.
constexpr std::array kSums{Entry{"aten::add.Tensor", Op::kAdd}, Entry{"aten::add.Scalar", Op::kAdd},
                           Entry{"aten::sub.Tensor", Op::kSubtract}, Entry{"aten::sub.Scalar", Op::kSubtract}};
constexpr std::array kProducts{Entry{"aten::mul.Tensor", Op::kMultiply}, Entry{"aten::mul.Scalar", Op::kMultiply},
                               Entry{"aten::div.Tensor", Op::kDivide}, Entry{"aten::div.Scalar", Op::kDivide}};
constexpr std::array kExtrema{Entry{"aten::maximum", Op::kMaximum}, Entry{"aten::minimum", Op::kMinimum}};
constexpr std::array kComparisons{
    Entry{"aten::eq", Op::kEqual},     Entry{"aten::ne", Op::kNotEqual}, Entry{"aten::lt", Op::kLess},
    Entry{"aten::le", Op::kLessEqual}, Entry{"aten::gt", Op::kGreater},  Entry{"aten::ge", Op::kGreaterEqual},
};
constexpr std::array kBits{
    Entry{"aten::bitwise_and.Tensor", Op::kAnd}, Entry{"aten::bitwise_or.Tensor", Op::kOr}, Entry{"aten::bitwise_xor.Tensor", Op::kXor},
    Entry{"aten::logical_and", Op::kAnd},        Entry{"aten::logical_or", Op::kOr},        Entry{"aten::logical_xor", Op::kXor},
};

template <std::size_t N>
const Op* find(const std::array<Entry, N>& table, std::string_view opcode) {
  const auto found = std::find_if(table.begin(), table.end(), [opcode](const Entry& entry) { return entry.opcode == opcode; });
  return found == table.end() ? nullptr : &found->op;
}

bool is_float(Element type) { return lane_of(type) != Lane::kInteger && type != Element::kBool; }

// What PyTorch compares two operands as: numbers and tensors without dimensions count only if their category is higher.
class Promotion {
 public:
  void add(Element type, int priority) {
    if (type_ && category(*type_) == category(type) && priority_ == priority && *type_ != type) {
      if (is_float(type)) {
        type_ = *type_ == Element::kF64 || type == Element::kF64 ? Element::kF64 : Element::kF32;
      } else if (*type_ == Element::kU8 || type == Element::kU8) {
        known_ = false;
      } else {
        type_ = size_of(type) > size_of(*type_) ? type : *type_;
      }
    } else if (!type_ || category(type) > category(*type_) || (category(type) == category(*type_) && priority > priority_)) {
      type_ = type;
      priority_ = priority;
    }
  }
  std::optional<Element> type() const { return known_ ? type_ : std::nullopt; }

 private:
  static int category(Element type) { return type == Element::kBool ? 0 : is_float(type) ? 2 : 1; }

  std::optional<Element> type_;
  int priority_ = 0;
  bool known_ = true;
};

std::optional<Element> common_type(RecipeBuilder& b) {
  Promotion promotion;
  for (std::size_t i = 0; i < 2; ++i) {
    if (b.is_tensor(i)) {
      promotion.add(*b.element(i), b.tensor(i).sizes.empty() ? 1 : 2);
    } else if (b.operand(i).get_if<double>() != nullptr) {
      promotion.add(Element::kF32, 0);
    } else {
      promotion.add(b.operand(i).get_if<bool>() != nullptr ? Element::kBool : Element::kI64, 0);
    }
  }
  return promotion.type();
}

bool is_one(const Argument& argument) {
  const auto* integer = argument.get_if<std::int64_t>();
  const auto* real = argument.get_if<double>();
  return (integer != nullptr && *integer == 1) || (real != nullptr && *real == 1.0);
}

bool build_sum(RecipeBuilder& b, Op op) {
  const Element type = b.result_element();
  if (type == Element::kBool) {
    return false;
  }
  const RecipeArgument left = b.as(0, type);
  if (b.operand_count() < 3 || is_one(b.operand(2))) {
    b.give(b.add(op, type, {left, b.as(1, type)}), type);
    return true;
  }
  if (!is_float(type) || b.operand(2).is_none()) {
    return false;
  }
  const Element wide = type == Element::kF64 ? Element::kF64 : Element::kF32;
  const RecipeArgument scaled = b.add(Op::kMultiply, wide, {b.as(1, type), RecipeBuilder::number(b.operand(2), wide, false)});
  b.give(b.add(op, type, {left, scaled}), type);
  return true;
}

bool build_product(RecipeBuilder& b, Op op) {
  const Element type = b.result_element();
  if (type == Element::kBool || (op == Op::kDivide && !is_float(type))) {
    return false;
  }
  b.give(b.add(op, type, {b.as(0, type), b.exact(1, type)}), type);
  return true;
}

bool build_power(RecipeBuilder& b) {
  const Element type = b.result_element();
  const auto* real = b.operand(1).get_if<double>();
  const auto* integer = b.operand(1).get_if<std::int64_t>();
  if (!is_float(type) || (real == nullptr && integer == nullptr)) {
    return false;
  }
  const double exponent = real != nullptr ? *real : static_cast<double>(*integer);
  const RecipeArgument x = b.as(0, type);
  if (exponent == 1) {
    b.give(x, type);
  } else if (exponent == 2) {
    b.give(b.add(Op::kSquare, type, {x}), type);
  } else if (exponent == 3 && type == Element::kF16) {
    b.give(b.add(Op::kCube, type, {x}), type);  // in float32; bfloat16 is rounded between
  } else if (exponent == 3) {
    b.give(b.add(Op::kMultiply, type, {b.add(Op::kSquare, type, {x}), x}), type);
  } else if (exponent == 0.5) {
    b.give(b.add(Op::kSqrt, type, {x}), type);
  } else if (exponent == -0.5) {
    b.give(b.add(Op::kRsqrt, type, {x}), type);
  } else if (exponent == -1) {
    b.give(b.add(Op::kReciprocal, type, {x}), type);
  } else {
    b.give(b.add(Op::kPow, type, {x, RecipeBuilder::number(exponent)}), type);
  }
  return true;
}

bool build_clamp(RecipeBuilder& b) {
  const Element type = b.result_element();
  RecipeArgument x = b.as(0, type);
  for (std::size_t i = 1; i < 3; ++i) {
    if (!b.operand(i).is_none()) {
      x = b.add(i == 1 ? Op::kMaximum : Op::kMinimum, type, {x, b.as(i, type)});
    }
  }
  b.give(x, type);
  return true;
}

bool build_gelu(RecipeBuilder& b, std::size_t approximation, Op exact, Op tanh) {
  const auto* name = b.operand(approximation).get_if<std::string>();
  const Element type = b.result_element();
  if (name == nullptr || !is_float(type)) {
    return false;
  }
  std::vector<RecipeArgument> arguments{b.as(0, type)};
  if (approximation == 2) {
    arguments.push_back(b.as(1, type));
  }
  b.give(b.add(*name == "tanh" ? tanh : exact, type, std::move(arguments)), type);
  return true;
}

bool build_arange(RecipeBuilder& b, std::string_view overload) {
  if (b.result_element() != Element::kI64) {
    return false;
  }
  const auto integer = [&](std::size_t index) { return b.operand(index).get_if<std::int64_t>(); };
  std::int64_t start = 0;
  std::int64_t step = 1;
  if (overload != "aten::arange") {
    if (integer(0) == nullptr) return false;
    start = *integer(0);
  }
  if (overload == "aten::arange.start_step") {
    if (integer(2) == nullptr) return false;
    step = *integer(2);
  }
  const RecipeArgument count = b.add(Op::kIota, Element::kI64, {});
  b.last().start = start;
  b.last().step = step;
  b.give(count, Element::kI64);
  return true;
}

bool build_where(RecipeBuilder& b, std::size_t condition, std::size_t yes, std::size_t no) {
  if (!b.is_tensor(condition) || *b.element(condition) != Element::kBool) {
    return false;
  }
  const Element type = b.result_element();
  b.give(b.add(Op::kWhere, type, {b.as(condition, Element::kBool), b.as(yes, type), b.as(no, type)}), type);
  return true;
}

bool build_special(const std::string& opcode, RecipeBuilder& b) {
  const Element type = b.result_element();
  if (opcode == "aten::pow.Tensor_Scalar") return build_power(b);
  if (opcode == "aten::clamp" || opcode == "aten::clamp.Tensor") return build_clamp(b);
  if (opcode == "aten::gelu") return build_gelu(b, 1, Op::kGelu, Op::kGeluTanh);
  if (opcode == "aten::gelu_backward") return build_gelu(b, 2, Op::kGeluBackward, Op::kGeluTanhBackward);
  if (opcode.starts_with("aten::arange")) return build_arange(b, opcode);
  if (opcode == "aten::where.self" || opcode == "aten::where.ScalarSelf" || opcode == "aten::where.ScalarOther")
    return build_where(b, 0, 1, 2);
  if (opcode == "aten::masked_fill.Scalar" || opcode == "aten::masked_fill.Tensor") return build_where(b, 1, 2, 0);
  if (opcode == "aten::rsub.Scalar" && is_float(type) && is_one(b.operand(2))) {
    b.give(b.add(Op::kSubtract, type, {b.as(1, type), b.as(0, type)}), type);
    return true;
  }
  if (opcode == "aten::logical_not" || (opcode == "aten::bitwise_not" && type == Element::kBool)) {
    b.give(b.add(Op::kNot, Element::kBool, {b.as(0, *b.element(0))}), type);
    return true;
  }
  if (opcode == "aten::isnan") {
    b.give(b.add(Op::kIsNan, Element::kBool, {b.as(0, *b.element(0))}), type);
    return true;
  }
  if (opcode == "aten::copy") {
    b.give(b.as(1, type), type);
    return true;
  }
  if (opcode == "aten::threshold_backward" && is_float(type)) {
    const RecipeArgument off = b.add(Op::kLessEqual, Element::kBool, {b.as(1, type), b.as(2, type)});
    b.give(b.add(Op::kWhere, type, {off, RecipeBuilder::number(0), b.as(0, type)}), type);
    return true;
  }
  if (opcode == "aten::leaky_relu" && is_float(type)) {
    const RecipeArgument x = b.as(0, type);
    const RecipeArgument positive = b.add(Op::kGreater, Element::kBool, {x, RecipeBuilder::number(0)});
    const RecipeArgument scaled = b.add(Op::kMultiply, type, {x, b.exact(1, type)});
    b.give(b.add(Op::kWhere, type, {positive, x, scaled}), type);
    return true;
  }
  return false;
}

}  // namespace

bool build_elementwise_recipe(const Instruction& instruction, RecipeBuilder& b) {
  const std::string& opcode = instruction.opcode;
  const Element type = b.result_element();
  b.over(b.result().sizes, false);
  if (const Op* op = find(kFloatFunctions, opcode)) {
    b.give(b.add(*op, type, {b.as(0, type)}), type);
    return is_float(type);
  }
  if (const Op* op = find(kSameType, opcode)) {
    const bool rounds = *op == Op::kFloor || *op == Op::kCeil || *op == Op::kRound || *op == Op::kTruncate;
    b.give(b.add(*op, type, {b.as(0, type)}), type);
    return type != Element::kBool && *b.element(0) == type && (!rounds || is_float(type));
  }
  if (std::find(kCopies.begin(), kCopies.end(), opcode) != kCopies.end()) {
    b.give(b.as(0, type), type);
    return true;
  }
  if (const Op* op = find(kGradients, opcode)) {
    b.give(b.add(*op, type, {b.as(0, type), b.as(1, type)}), type);
    return is_float(type);
  }
  if (const Op* op = find(kSums, opcode)) return build_sum(b, *op);
  if (const Op* op = find(kProducts, opcode)) return build_product(b, *op);
  if (const Op* op = find(kExtrema, opcode)) {
    b.give(b.add(*op, type, {b.as(0, type), b.as(1, type)}), type);
    return type != Element::kBool;
  }
  if (const Op* op = find(kBits, opcode)) {
    const bool logical = opcode.starts_with("aten::logical");
    if (logical ? type != Element::kBool : is_float(type)) {
      return false;
    }
    b.give(b.add(*op, type, {b.as(0, type), b.as(1, type)}), type);
    return true;
  }
  const std::string base = opcode.substr(0, opcode.find('.'));
  if (const Op* op = find(kComparisons, base)) {
    const auto compared = common_type(b);
    if (!compared || type != Element::kBool) {
      return false;
    }
    b.give(b.add(*op, Element::kBool, {b.as(0, *compared), b.as(1, *compared)}), type);
    return true;
  }
  return build_special(opcode, b);
}

}  // namespace neuron::compiler
