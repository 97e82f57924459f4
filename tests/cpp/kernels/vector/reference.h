// The slow way to compute a region: element by element in float64, rounding after every node. What the interpreter is compared with.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/vector/plan.h"

namespace neuron::kernels::vector::testing {

inline double round_to(Element type, double x) {
  switch (type) {
    case Element::kF32:
      return static_cast<float>(x);
    case Element::kF16:
      return static_cast<double>(static_cast<_Float16>(static_cast<float>(x)));
    case Element::kBF16: {
      const auto f = static_cast<float>(x);
      if (std::isnan(f)) return f;
      const auto bits = std::bit_cast<std::uint32_t>(f);
      return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
    }
    case Element::kF64:
      return x;
    case Element::kBool:
      return x != 0 ? 1 : 0;
    case Element::kI64:
      return std::trunc(x);
    case Element::kI32:
      return static_cast<std::int32_t>(static_cast<std::int64_t>(x));
    case Element::kI16:
      return static_cast<std::int16_t>(static_cast<std::int64_t>(x));
    case Element::kI8:
      return static_cast<std::int8_t>(static_cast<std::int64_t>(x));
    case Element::kU8:
      return static_cast<std::uint8_t>(static_cast<std::int64_t>(x));
  }
  return x;
}

inline double element_at(Element type, const std::byte* memory, std::int64_t index) {
  const auto as = [&]<typename T>(T) {
    T value;
    std::memcpy(&value, memory + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  switch (type) {
    case Element::kF32:
      return as(float{});
    case Element::kF64:
      return as(double{});
    case Element::kBF16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(as(std::uint16_t{})) << 16);
    case Element::kF16:
      return static_cast<double>(static_cast<float>(as(_Float16{})));
    case Element::kI64:
      return static_cast<double>(as(std::int64_t{}));
    case Element::kI32:
      return as(std::int32_t{});
    case Element::kI16:
      return as(std::int16_t{});
    case Element::kI8:
      return as(std::int8_t{});
    default:
      return as(std::uint8_t{});
  }
}

inline void put(Element type, std::byte* memory, std::int64_t index, double x) {
  const auto as = [&](auto value) { std::memcpy(memory + index * static_cast<std::int64_t>(sizeof(value)), &value, sizeof(value)); };
  switch (type) {
    case Element::kF32:
      return as(static_cast<float>(x));
    case Element::kF64:
      return as(x);
    case Element::kBF16:
      return as(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(round_to(type, x))) >> 16));
    case Element::kF16:
      return as(static_cast<_Float16>(static_cast<float>(x)));
    case Element::kI64:
      return as(static_cast<std::int64_t>(x));
    case Element::kI32:
      return as(static_cast<std::int32_t>(x));
    case Element::kI16:
      return as(static_cast<std::int16_t>(x));
    case Element::kI8:
      return as(static_cast<std::int8_t>(x));
    case Element::kU8:
      return as(static_cast<std::uint8_t>(x));
    case Element::kBool:
      return as(static_cast<std::uint8_t>(x != 0));
  }
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One operation in float64.
inline double apply(Op op, double a, double b, double c) {
  constexpr double kPi = 3.14159265358979323846;
  switch (op) {
    case Op::kNegate:
      return -a;
    case Op::kAbs:
      return std::fabs(a);
    case Op::kExp:
      return std::exp(a);
    case Op::kLog:
      return std::log(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return 1 / std::sqrt(a);
    case Op::kReciprocal:
      return 1 / a;
    case Op::kTanh:
      return std::tanh(a);
    case Op::kSigmoid:
      return sigmoid(a);
    case Op::kSilu:
      return a / (1 + std::exp(-a));
    case Op::kGelu:
      return a * 0.5 * (1 + std::erf(a / std::sqrt(2.0)));
    case Op::kGeluTanh:
      return 0.5 * a * (1 + std::tanh(std::sqrt(2 / kPi) * (a + 0.044715 * a * a * a)));
    case Op::kErf:
      return std::erf(a);
    case Op::kSin:
      return std::sin(a);
    case Op::kCos:
      return std::cos(a);
    case Op::kRelu:
      return a < 0 ? 0 : a;
    case Op::kFloor:
      return std::floor(a);
    case Op::kCeil:
      return std::ceil(a);
    case Op::kRound:
      return std::nearbyint(a);
    case Op::kTruncate:
      return std::trunc(a);
    case Op::kSign:
      return (a > 0) - (a < 0);
    case Op::kIsNan:
      return std::isnan(a);
    case Op::kNot:
      return a == 0;
    case Op::kExp2:
      return std::exp2(a);
    case Op::kLog2:
      return std::log2(a);
    case Op::kLog1p:
      return std::log1p(a);
    case Op::kExpm1:
      return std::expm1(a);
    case Op::kSquare:
      return a * a;
    case Op::kCube:
      return a * a * a;
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kMultiply:
      return a * b;
    case Op::kDivide:
      return a / b;
    case Op::kMaximum:
      return std::isnan(a) || a > b ? a : b;
    case Op::kMinimum:
      return std::isnan(a) || a < b ? a : b;
    case Op::kPow:
      return std::pow(a, b);
    case Op::kEqual:
      return a == b;
    case Op::kNotEqual:
      return a != b;
    case Op::kLess:
      return a < b;
    case Op::kLessEqual:
      return a <= b;
    case Op::kGreater:
      return a > b;
    case Op::kGreaterEqual:
      return a >= b;
    case Op::kAnd:
      return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b));
    case Op::kOr:
      return static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b));
    case Op::kXor:
      return static_cast<double>(static_cast<std::int64_t>(a) ^ static_cast<std::int64_t>(b));
    case Op::kSiluBackward:
      return a * sigmoid(b) * (1 + b * (1 - sigmoid(b)));
    case Op::kGeluBackward:
      return a * (0.5 * (1 + std::erf(b / std::sqrt(2.0))) + b * std::exp(-b * b / 2) / std::sqrt(2 * kPi));
    case Op::kGeluTanhBackward: {
      const double k = std::sqrt(2 / kPi);
      const double t = std::tanh(k * (b + 0.044715 * b * b * b));
      return a * (0.5 * (1 + t) + 0.5 * b * (1 - t * t) * k * (1 + 3 * 0.044715 * b * b));
    }
    case Op::kTanhBackward:
      return a * (1 - b * b);
    case Op::kSigmoidBackward:
      return a * (1 - b) * b;
    case Op::kWhere:
      return a != 0 ? b : c;
    default:
      return a;
  }
}

// Visits all points of the iteration space.
template <typename Visitor>
void for_each_point(const std::vector<std::int64_t>& sizes, Visitor&& visit) {
  std::vector<std::int64_t> point(sizes.size(), 0);
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  while (true) {
    visit(point);
    std::size_t dim = sizes.size();
    while (dim > 0 && ++point[dim - 1] == sizes[dim - 1]) point[--dim] = 0;
    if (dim == 0) return;
  }
}

inline std::int64_t offset_of(const Access& access, const std::vector<std::int64_t>& point) {
  std::int64_t offset = access.offset;
  for (std::size_t dim = 0; dim < point.size(); ++dim) offset += point[dim] * access.strides[dim];
  return offset;
}

// The values of all nodes at all points, in the order of for_each_point.
class Reference {
 public:
  Reference(const Region& region, const std::vector<const std::byte*>& inputs) : row_(region.sizes.empty() ? 1 : region.sizes.back()) {
    for (const Node& node : region.nodes) {
      std::vector<double> values;
      std::size_t at = 0;
      for_each_point(region.sizes, [&](const std::vector<std::int64_t>& point) { values.push_back(value(node, point, at++, inputs)); });
      values_.push_back(std::move(values));
    }
  }

  double value(int node, std::size_t at) const { return values_[static_cast<std::size_t>(node)][at]; }

 private:
  double value(const Node& node, const std::vector<std::int64_t>& point, std::size_t at,
               const std::vector<const std::byte*>& inputs) const {
    const auto read = [&](std::size_t i, std::size_t where) {
      const Argument& argument = node.arguments[i];
      return argument.is_number() ? argument.number : value(argument.node, where);
    };
    if (is_source(node.op)) {
      const std::int64_t offset = offset_of(node.access, point);
      return node.op == Op::kIota ? static_cast<double>(offset)
                                  : element_at(node.type, inputs[static_cast<std::size_t>(node.tensor)], offset);
    }
    const auto row = static_cast<std::size_t>(row_);
    if (is_reduction(node.op)) {
      if (at % row != 0) {
        return values_of_row_;
      }
      double result = node.op == Op::kSum ? 0 : node.op == Op::kAmax ? -INFINITY : INFINITY;
      for (std::size_t i = 0; i < row; ++i) {
        const double x = read(0, at + i);
        result = node.op == Op::kSum ? result + x : apply(node.op == Op::kAmax ? Op::kMaximum : Op::kMinimum, result, x, 0);
      }
      return values_of_row_ = round_to(node.type, result);
    }
    if (is_rotation(node.op)) {
      const bool low = at % row < row / 2;
      const double x = read(0, low ? at + row / 2 : at - row / 2);
      return node.op == Op::kRotateHalf ? (low ? -x : x) : (low ? x + 0.0 : 0.0 - x);
    }
    double operands[3] = {0, 0, 0};
    for (std::size_t i = 0; i < node.arguments.size(); ++i) operands[i] = read(i, at);
    if (node.op == Op::kMultiplyAdd) {
      return round_to(node.type, round_to(node.type, operands[0] * operands[1]) + operands[2]);
    }
    return round_to(node.type, apply(node.op, operands[0], operands[1], operands[2]));
  }

  std::int64_t row_;
  std::vector<std::vector<double>> values_;
  mutable double values_of_row_ = 0;
};

// Runs a plan over tensors, in `parts` pieces, each with scratch memory of its own.
inline void run(const Plan& plan, std::vector<std::vector<std::byte>>& tensors, std::int64_t parts = 1) {
  std::vector<void*> pointers;
  for (auto& tensor : tensors) pointers.push_back(tensor.data());
  for (std::int64_t part = 0; part < parts; ++part) {
    std::vector<std::byte> memory(plan.scratch_bytes() + 64, std::byte{0xff});
    auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
    plan.run(pointers.data(), plan.units() * part / parts, plan.units() * (part + 1) / parts, aligned);
  }
}

}  // namespace neuron::kernels::vector::testing
