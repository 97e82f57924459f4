// A fused region: a graph of element-wise operations and reductions over the last dimension, which the interpreter computes in one pass
// over memory. Plain data; plan.h makes it executable. The compiler builds regions, prints them and reads them back
// (compiler/region_text.h).
//
// Numbers: float32, bfloat16, float16 and bool live in float32 registers, float64 in double, integers in int64. A node's result is rounded
// to its element type (bool is 0 or 1, integers wrap), so a region rounds where the single operators would.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace neuron::kernels::vector {

enum class Element : std::uint8_t { kF32, kBF16, kF16, kF64, kI64, kI32, kI16, kI8, kU8, kBool };
inline constexpr int kElementCount = 10;

// The registers that an element type lives in.
enum class Lane : std::uint8_t { kFloat, kDouble, kInteger };
inline constexpr int kLaneCount = 3;

constexpr Lane lane_of(Element element) {
  switch (element) {
    case Element::kF64:
      return Lane::kDouble;
    case Element::kI64:
    case Element::kI32:
    case Element::kI16:
    case Element::kI8:
    case Element::kU8:
      return Lane::kInteger;
    default:
      return Lane::kFloat;
  }
}

constexpr int size_of(Element element) {
  switch (element) {
    case Element::kF64:
    case Element::kI64:
      return 8;
    case Element::kF32:
    case Element::kI32:
      return 4;
    case Element::kI8:
    case Element::kU8:
    case Element::kBool:
      return 1;
    default:
      return 2;
  }
}

constexpr int size_of(Lane lane) { return lane == Lane::kFloat ? 4 : 8; }

enum class Op : std::uint8_t {
  kLoad,  // of the region's tensor number `tensor`
  kIota,  // the access' offset plus stride times position: an integer that counts elements
  kCopy,  // casts to the node's type
  kNegate,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kTanh,
  kSigmoid,
  kSilu,
  kGelu,
  kGeluTanh,
  kErf,
  kSin,
  kCos,
  kRelu,
  kFloor,
  kCeil,
  kRound,  // to even
  kTruncate,
  kSign,
  kIsNan,
  kNot,  // of truth values
  kExp2,
  kLog2,
  kLog1p,
  kExpm1,
  kSquare,
  kCube,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,  // NaN if one is
  kMinimum,
  kPow,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,  // bitwise on integers
  kOr,
  kXor,
  kSiluBackward,      // (gradient, input)
  kGeluBackward,      // (gradient, input)
  kGeluTanhBackward,  // (gradient, input)
  kTanhBackward,      // (gradient, output)
  kSigmoidBackward,   // (gradient, output)
  kWhere,             // (truth value, if true, if false)
  kMultiplyAdd,       // a * b, rounded, + c, rounded: two steps of a graph in one
  kSum,               // over the last dimension
  kAmax,              // NaN if an element is
  kAmin,
  kRotateHalf,      // out[i] = i < half ? -a[i + half] : a[i - half] along the last dimension, whose size is even
  kRotateHalfBack,  // its gradient: out[i] = i < half ? a[i + half] : -a[i - half], negative zeros made positive
};
inline constexpr int kOpCount = static_cast<int>(Op::kRotateHalfBack) + 1;

std::string_view name_of(Op op);
std::string_view name_of(Element element);
bool parse(std::string_view name, Op& op);
bool parse(std::string_view name, Element& element);

constexpr bool is_source(Op op) { return op == Op::kLoad || op == Op::kIota; }
constexpr bool is_reduction(Op op) { return op == Op::kSum || op == Op::kAmax || op == Op::kAmin; }
constexpr bool is_rotation(Op op) { return op == Op::kRotateHalf || op == Op::kRotateHalfBack; }
constexpr bool is_comparison(Op op) { return op >= Op::kEqual && op <= Op::kGreaterEqual; }
// How many arguments an operation takes.
constexpr int arity_of(Op op) {
  if (is_source(op)) return 0;
  if (op == Op::kWhere || op == Op::kMultiplyAdd) return 3;
  return op >= Op::kAdd && op <= Op::kSigmoidBackward ? 2 : 1;
}

// Where the elements of a tensor lie: strides per dimension of the region, in elements; 0 where the tensor does not extend.
struct Access {
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;

  bool operator==(const Access&) const = default;
};

// An earlier node, or a number.
struct Argument {
  int node = -1;
  double number = 0;         // for float lanes and double lanes
  std::int64_t integer = 0;  // for integer lanes

  static Argument of(int node) { return {node, 0, 0}; }
  static Argument of_number(double number) { return {-1, number, 0}; }
  static Argument of_integer(std::int64_t integer) { return {-1, static_cast<double>(integer), integer}; }
  bool is_number() const { return node < 0; }
  bool operator==(const Argument&) const = default;
};

struct Node {
  Op op = Op::kCopy;
  Element type = Element::kF32;
  std::vector<Argument> arguments;  // all in the lane of the result, but of comparisons (equal lanes) and conditions (float lanes)
  int tensor = -1;                  // kLoad: which of the region's tensors
  Access access;                    // kLoad, kIota

  bool operator==(const Node&) const = default;
};

// Result `i` of the region is node `node`. A result that does not extend along the last dimension takes the value of each row.
struct Store {
  int node = -1;
  Element type = Element::kF32;
  Access access;

  bool operator==(const Store&) const = default;
};

struct Region {
  std::vector<std::int64_t> sizes;  // the iteration space; reductions and rotations go along its last dimension
  int inputs = 0;                   // tensors that are read
  std::vector<Node> nodes;          // each after its arguments
  std::vector<Store> stores;        // tensors that are written, in order

  bool operator==(const Region&) const = default;
};

// Throws std::invalid_argument saying what is wrong: arguments that do not precede, wrong lanes, ranks that differ, odd rotations.
void check(const Region& region);

}  // namespace neuron::kernels::vector
