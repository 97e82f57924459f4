// Names of operations and element types, and the check of regions.
#include "kernels/vector/region.h"

#include <array>
#include <stdexcept>
#include <string>

namespace neuron::kernels::vector {
namespace {

constexpr std::array<std::string_view, kOpCount> kOpNames{
    "load",
    "iota",
    "cast",
    "neg",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "tanh",
    "sigmoid",
    "silu",
    "gelu",
    "gelu_tanh",
    "erf",
    "sin",
    "cos",
    "relu",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "isnan",
    "not",
    "exp2",
    "log2",
    "log1p",
    "expm1",
    "square",
    "cube",
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "xor",
    "silu_backward",
    "gelu_backward",
    "gelu_tanh_backward",
    "tanh_backward",
    "sigmoid_backward",
    "where",
    "mul_add",
    "sum",
    "amax",
    "amin",
    "rotate_half",
    "rotate_half_back",
};
static_assert(kOpNames.back() == "rotate_half_back");
constexpr std::array<std::string_view, kElementCount> kElementNames{"f32", "bf16", "f16", "f64", "i64", "i32", "i16", "i8", "u8", "i1"};

template <typename Enum, std::size_t N>
bool find(const std::array<std::string_view, N>& names, std::string_view name, Enum& found) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) {
      found = static_cast<Enum>(i);
      return true;
    }
  }
  return false;
}

void require(bool condition, const std::string& what) {
  if (!condition) {
    throw std::invalid_argument("fused region: " + what);
  }
}

void check_lanes(const Region& region, const Node& node) {
  for (std::size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    if (argument.is_number()) {
      continue;
    }
    const Lane lane = lane_of(region.nodes[static_cast<std::size_t>(argument.node)].type);
    if (node.op == Op::kWhere && i == 0) {
      require(lane == Lane::kFloat, "a condition is a truth value");
    } else if (is_comparison(node.op)) {
      const Argument& first = node.arguments[0].is_number() ? node.arguments[1] : node.arguments[0];
      require(!first.is_number() && lane == lane_of(region.nodes[static_cast<std::size_t>(first.node)].type), "compared lanes differ");
    } else if (node.op != Op::kCopy && node.op != Op::kIsNan && node.op != Op::kNot) {
      require(lane == lane_of(node.type), std::string(name_of(node.op)) + " takes other lanes than it gives");
    }
  }
}

}  // namespace

std::string_view name_of(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }
std::string_view name_of(Element element) { return kElementNames[static_cast<std::size_t>(element)]; }
bool parse(std::string_view name, Op& op) { return find(kOpNames, name, op); }
bool parse(std::string_view name, Element& element) { return find(kElementNames, name, element); }

void check(const Region& region) {
  const std::size_t rank = region.sizes.size();
  for (const std::int64_t size : region.sizes) {
    require(size >= 0, "a size is negative");
  }
  for (std::size_t i = 0; i < region.nodes.size(); ++i) {
    const Node& node = region.nodes[i];
    const std::string name(name_of(node.op));
    require(static_cast<int>(node.arguments.size()) == arity_of(node.op),
            name + " takes " + std::to_string(arity_of(node.op)) + " arguments");
    for (const Argument& argument : node.arguments) {
      require(argument.node < static_cast<int>(i), name + " reads a node that does not precede it");
    }
    check_lanes(region, node);
    if (is_source(node.op)) {
      require(node.access.strides.size() == rank,
              name + " has " + std::to_string(node.access.strides.size()) + " strides in " + std::to_string(rank) + " dimensions");
    }
    if (node.op == Op::kLoad) {
      require(node.tensor >= 0 && node.tensor < region.inputs, "load of tensor " + std::to_string(node.tensor));
    }
    if (node.op == Op::kIota) {
      require(node.type == Element::kI64, "iota counts in int64");
    }
    if (is_reduction(node.op) || is_rotation(node.op)) {
      require(rank > 0 && region.sizes.back() > 0 && !node.arguments[0].is_number(), name + " goes over the last dimension of a node");
    }
    if (is_rotation(node.op)) {
      require(region.sizes.back() % 2 == 0 && lane_of(node.type) == Lane::kFloat, name + " takes an even number of float lanes");
    }
  }
  require(!region.stores.empty(), "nothing is stored");
  for (const Store& store : region.stores) {
    require(store.node >= 0 && store.node < static_cast<int>(region.nodes.size()), "store of node " + std::to_string(store.node));
    require(store.access.strides.size() == rank, "a store has another rank");
    require(region.nodes[static_cast<std::size_t>(store.node)].type == store.type, "a store changes the element type");
  }
}

}  // namespace neuron::kernels::vector
