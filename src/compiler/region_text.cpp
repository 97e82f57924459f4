// Fused regions to text and back.
#include "compiler/region_text.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "compiler/argument.h"

namespace neuron::compiler {
namespace {

using kernels::vector::Access;
using kernels::vector::Element;
using kernels::vector::Lane;
using kernels::vector::lane_of;
using kernels::vector::Node;
using kernels::vector::Op;
using kernels::vector::Region;
using kernels::vector::Store;
using Kind = Lexer::Kind;

std::string print(const std::vector<std::int64_t>& values, char open, char close) {
  std::string text(1, open);
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(values[i]);
  }
  return text + close;
}

std::string print(const Access& access) {
  return print(access.strides, '{', '}') + (access.offset == 0 ? "" : " offset " + std::to_string(access.offset));
}

// The lane of an operation's numbers: its own, but for comparisons, whose result is a truth value.
Lane lane_of_numbers(const Region& region, const Node& node) {
  if (is_comparison(node.op)) {
    for (const auto& argument : node.arguments) {
      if (!argument.is_number()) {
        return lane_of(region.nodes[static_cast<std::size_t>(argument.node)].type);
      }
    }
  }
  return lane_of(node.type);
}

class RegionParser {
 public:
  explicit RegionParser(Lexer& lexer) : lexer_(lexer) {}

  Region parse() {
    lexer_.expect("{");
    lexer_.expect("over");
    lexer_.expect("[");
    region_.sizes = integers("]");
    while (!lexer_.take_if("}")) {
      if (lexer_.take_if("store")) {
        Store store;
        store.node = node();
        store.type = region_.nodes[static_cast<std::size_t>(store.node)].type;
        store.access = access();
        region_.stores.push_back(std::move(store));
      } else {
        parse_node();
      }
    }
    return std::move(region_);
  }

 private:
  std::string take(Kind kind, const char* what) {
    if (lexer_.peek().kind != kind) {
      lexer_.fail(std::string("expected ") + what + ", found '" + lexer_.peek().text + "'");
    }
    return lexer_.take().text;
  }

  std::int64_t integer() { return std::strtoll(take(Kind::kNumber, "an integer").c_str(), nullptr, 10); }

  std::vector<std::int64_t> integers(const char* close) {
    std::vector<std::int64_t> values;
    while (!lexer_.take_if(close)) {
      values.push_back(integer());
      lexer_.take_if(",");
    }
    return values;
  }

  Access access() {
    Access result;
    lexer_.expect("{");
    result.strides = integers("}");
    if (lexer_.take_if("offset")) {
      result.offset = integer();
    }
    return result;
  }

  int node() {
    const std::string name = take(Kind::kWord, "a node");
    int index = -1;
    const auto* const end = name.data() + name.size();
    const bool is_number = name.size() > 1 && name[0] == 'n' && std::from_chars(name.data() + 1, end, index).ptr == end;
    if (!is_number || index < 0 || index >= static_cast<int>(region_.nodes.size())) {
      lexer_.fail("'" + name + "' is no node that was defined");
    }
    return index;
  }

  kernels::vector::Argument argument() {
    if (lexer_.peek().kind == Kind::kNumber) {
      const std::string text = lexer_.take().text;
      if (text == "-inf") {
        return kernels::vector::Argument::of_number(-std::numeric_limits<double>::infinity());
      }
      return text.find_first_of(".e") == std::string::npos ? kernels::vector::Argument::of_integer(std::strtoll(text.c_str(), nullptr, 10))
                                                           : kernels::vector::Argument::of_number(std::strtod(text.c_str(), nullptr));
    }
    if (lexer_.take_if("inf")) {
      return kernels::vector::Argument::of_number(std::numeric_limits<double>::infinity());
    }
    if (lexer_.take_if("nan")) {
      return kernels::vector::Argument::of_number(std::numeric_limits<double>::quiet_NaN());
    }
    return kernels::vector::Argument::of(node());
  }

  void parse_node() {
    const std::string name = take(Kind::kWord, "a node");
    if (name != "n" + std::to_string(region_.nodes.size())) {
      lexer_.fail("expected the node n" + std::to_string(region_.nodes.size()) + ", found '" + name + "'");
    }
    lexer_.expect("=");
    Node node;
    const std::string op = take(Kind::kWord, "an operation");
    if (!kernels::vector::parse(op, node.op)) {
      lexer_.fail("'" + op + "' is no operation of a region");
    }
    lexer_.expect("(");
    if (node.op == Op::kLoad) {
      node.tensor = static_cast<int>(integer());
      region_.inputs = std::max(region_.inputs, node.tensor + 1);
    }
    while (!lexer_.take_if(")")) {
      node.arguments.push_back(argument());
      lexer_.take_if(",");
    }
    lexer_.expect(":");
    const std::string type = take(Kind::kWord, "an element type");
    if (!kernels::vector::parse(type, node.type)) {
      lexer_.fail("'" + type + "' is no element type of a region");
    }
    if (is_source(node.op)) {
      node.access = access();
    }
    region_.nodes.push_back(std::move(node));
  }

  Lexer& lexer_;
  Region region_;
};

}  // namespace

std::string to_string(const Region& region) {
  std::string text = "{\n    over " + print(region.sizes, '[', ']') + "\n";
  for (std::size_t i = 0; i < region.nodes.size(); ++i) {
    const Node& node = region.nodes[i];
    text += "    n" + std::to_string(i) + " = " + std::string(name_of(node.op)) + "(";
    text += node.op == Op::kLoad ? std::to_string(node.tensor) : "";
    const bool integers = lane_of_numbers(region, node) == Lane::kInteger;
    for (std::size_t j = 0; j < node.arguments.size(); ++j) {
      const auto& argument = node.arguments[j];
      text += j == 0 ? "" : ", ";
      text += !argument.is_number() ? "n" + std::to_string(argument.node)
              : integers            ? to_string(Argument(argument.integer))
                                    : to_string(Argument(argument.number));
    }
    text += "): " + std::string(kernels::vector::name_of(node.type)) + (is_source(node.op) ? print(node.access) : "") + "\n";
  }
  for (const Store& store : region.stores) {
    text += "    store n" + std::to_string(store.node) + " " + print(store.access) + "\n";
  }
  return text + "  }";
}

Region parse_region(Lexer& lexer) { return RegionParser(lexer).parse(); }

std::optional<Element> element_of(ScalarKind kind) {
  Element element{};
  return kernels::vector::parse(name_of(kind), element) ? std::optional(element) : std::nullopt;
}

std::optional<Element> element_of(const Type& type) {
  return type.is_tensor() && type.tensor.place.type == "neuron" ? element_of(type.tensor.scalar) : std::nullopt;
}

}  // namespace neuron::compiler
