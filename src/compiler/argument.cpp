// Text form of arguments. Floating point is printed so that reading it back gives the same bits.
#include "compiler/argument.h"

#include <array>
#include <charconv>
#include <cmath>

namespace neuron::compiler {
namespace {

std::string print_double(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";  // an integer literal is another thing
  }
  return text;
}

std::string print_string(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') {
      text += '\\';
    }
    text += c;
  }
  return text + '"';
}

struct Printer {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(const ValueRef& ref) const { return "%" + std::to_string(ref.id); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return print_double(value); }
  std::string operator()(const std::complex<double>& value) const {
    return "complex(" + print_double(value.real()) + ", " + print_double(value.imag()) + ")";
  }
  std::string operator()(const std::string& value) const { return print_string(value); }
  std::string operator()(const Symbol& symbol) const { return symbol.kind + ":" + symbol.name; }
  std::string operator()(const Argument::List& list) const {
    std::string text = "[";
    for (std::size_t i = 0; i < list.size(); ++i) {
      text += (i > 0 ? ", " : "") + to_string(list[i]);
    }
    return text + "]";
  }
};

}  // namespace

std::string to_string(const Argument& argument) { return argument.visit(Printer{}); }

}  // namespace neuron::compiler
