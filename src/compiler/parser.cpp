// Text to program: a recursive-descent parser over the lexer's tokens.
#include "compiler/parser.h"

#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>

#include "compiler/region_text.h"

namespace neuron::compiler {
namespace {

using Kind = Lexer::Kind;

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  Program parse() {
    lexer_.expect("program");
    program_.set_name(take(Kind::kString, "the program's name in quotes"));
    lexer_.expect("{");
    while (!lexer_.take_if("return")) {
      parse_statement();
    }
    program_.outputs = parse_list();
    lexer_.expect("}");
    if (lexer_.peek().kind != Kind::kEnd) {
      lexer_.fail("text after the program's end");
    }
    return std::move(program_);
  }

 private:
  std::string take(Kind kind, const char* what) {
    if (lexer_.peek().kind != kind) {
      lexer_.fail(std::string("expected ") + what + ", found '" + lexer_.peek().text + "'");
    }
    return lexer_.take().text;
  }

  std::int64_t parse_integer(const std::string& text) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      lexer_.fail("'" + text + "' is not an integer");
    }
    return value;
  }

  double parse_double(const std::string& text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
      lexer_.fail("'" + text + "' is not a number");
    }
    return value;
  }

  ValueId defined(const std::string& number) {
    const auto found = values_.find(number);
    if (found == values_.end()) {
      lexer_.fail("%" + number + " is used before it is defined");
    }
    return found->second;
  }

  void define(const std::string& number, ValueId id) {
    if (!values_.emplace(number, id).second) {
      lexer_.fail("%" + number + " is defined twice");
    }
  }

  std::vector<std::int64_t> parse_integers(const char* close) {
    std::vector<std::int64_t> values;
    while (!lexer_.take_if(close)) {
      values.push_back(parse_integer(take(Kind::kNumber, "an integer")));
      lexer_.take_if(",");
    }
    return values;
  }

  Type parse_type() {
    const std::string name = take(Kind::kWord, "a type");
    for (const auto kind : {Type::Kind::kInt, Type::Kind::kFloat, Type::Kind::kBool, Type::Kind::kObject}) {
      if (to_string(Type::of(kind)) == name) {
        return Type::of(kind);
      }
    }
    TensorType tensor;
    if (!parse_scalar_kind(name, tensor.scalar)) {
      lexer_.fail("'" + name + "' is no element type");
    }
    lexer_.expect("[");
    tensor.sizes = parse_integers("]");
    tensor.strides = lexer_.take_if("{") ? parse_integers("}") : contiguous_strides(tensor.sizes);
    lexer_.expect("@");
    const std::string place = take(Kind::kWord, "a device");
    const std::size_t colon = place.find(':');
    tensor.place =
        Place{place.substr(0, colon), colon == std::string::npos ? -1 : static_cast<int>(parse_integer(place.substr(colon + 1)))};
    return Type::of_tensor(std::move(tensor));
  }

  Argument parse_word() {
    const std::string word = lexer_.take().text;
    if (word == "none") {
      return {};
    }
    if (word == "true" || word == "false") {
      return Argument(word == "true");
    }
    if (word == "inf") {
      return Argument(std::numeric_limits<double>::infinity());
    }
    if (word == "nan") {
      return Argument(std::numeric_limits<double>::quiet_NaN());
    }
    if (word == "complex" && lexer_.take_if("(")) {
      const double real = parse_double(lexer_.take().text);
      lexer_.expect(",");
      const double imaginary = parse_double(lexer_.take().text);
      lexer_.expect(")");
      return Argument(std::complex<double>(real, imaginary));
    }
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos) {
      lexer_.fail("'" + word + "' is no argument");
    }
    return Argument(Symbol{word.substr(0, colon), word.substr(colon + 1)});
  }

  std::vector<Argument> parse_list() {
    lexer_.expect("[");
    std::vector<Argument> list;
    while (!lexer_.take_if("]")) {
      list.push_back(parse_argument());
      lexer_.take_if(",");
    }
    return list;
  }

  Argument parse_argument() {
    switch (lexer_.peek().kind) {
      case Kind::kValue:
        return Argument::value(defined(lexer_.take().text));
      case Kind::kString:
        return Argument(lexer_.take().text);
      case Kind::kWord:
        return parse_word();
      case Kind::kNumber: {
        const std::string text = lexer_.take().text;
        if (text == "-inf") {
          return Argument(-std::numeric_limits<double>::infinity());
        }
        return text.find_first_of(".e") == std::string::npos ? Argument(parse_integer(text)) : Argument(parse_double(text));
      }
      default:
        return Argument(parse_list());
    }
  }

  void parse_statement() {
    if (lexer_.take_if("input")) {
      const std::string number = take(Kind::kValue, "a value");
      lexer_.expect(":");
      define(number, program_.add_input(parse_type()));
    } else if (lexer_.take_if("constant")) {
      const std::string number = take(Kind::kValue, "a value");
      lexer_.expect(":");
      define(number, program_.add_constant(parse_type()));
    } else if (lexer_.take_if("release")) {
      do {
        program_.entry_releases.push_back(defined(take(Kind::kValue, "a value")));
      } while (lexer_.take_if(","));
    } else {
      parse_instruction();
    }
  }

  std::vector<int> parse_indices() {
    lexer_.expect("(");
    std::vector<int> indices;
    for (const std::int64_t index : parse_integers(")")) {
      indices.push_back(static_cast<int>(index));
    }
    return indices;
  }

  void parse_operands(Instruction& instruction) {
    lexer_.expect("(");
    while (!lexer_.take_if(")")) {
      Operand operand;
      if (lexer_.peek().kind == Kind::kWord) {
        Lexer lookahead = lexer_;  // name=value, or a word that is the value
        lookahead.take();
        if (lookahead.take_if("=")) {
          operand.name = lexer_.take().text;
          lexer_.expect("=");
        }
      }
      operand.value = parse_argument();
      instruction.operands.push_back(std::move(operand));
      lexer_.take_if(",");
    }
  }

  void parse_instruction() {
    std::vector<std::optional<std::string>> results;
    if (lexer_.peek().kind == Kind::kValue || lexer_.peek().text == "_") {
      do {
        results.push_back(lexer_.take_if("_") ? std::nullopt : std::optional(take(Kind::kValue, "a value")));
      } while (lexer_.take_if(","));
      lexer_.expect("=");
    }
    Instruction instruction;
    instruction.opcode = take(Kind::kWord, "an opcode");
    parse_operands(instruction);
    while (lexer_.peek().kind == Kind::kWord && parse_attribute(instruction)) {
    }
    bool first = true;
    for (const auto& number : results) {
      if (!number) {
        instruction.results.push_back(kNoValue);
        continue;
      }
      lexer_.expect(first ? ":" : ",");
      first = false;
      instruction.results.push_back(program_.new_value(parse_type()));
      define(*number, instruction.results.back());
    }
    program_.instructions.push_back(std::move(instruction));
  }

  bool parse_attribute(Instruction& instruction) {
    if (lexer_.take_if("body")) {
      lexer_.expect("=");
      instruction.body = parse_region(lexer_);
    } else if (lexer_.take_if("writes")) {
      instruction.effects.writes = parse_indices();
    } else if (lexer_.take_if("views")) {
      instruction.effects.views = parse_indices();
    } else if (lexer_.take_if("ordered")) {
      instruction.effects.ordered = true;
    } else if (lexer_.take_if("inplace")) {
      lexer_.expect("(");
      instruction.inplace_opcode = take(Kind::kWord, "an opcode");
      lexer_.expect(")");
    } else if (lexer_.take_if("releases")) {
      lexer_.expect("(");
      while (!lexer_.take_if(")")) {
        instruction.releases.push_back(defined(take(Kind::kValue, "a value")));
        lexer_.take_if(",");
      }
    } else {
      return false;
    }
    return true;
  }

  Lexer lexer_;
  Program program_;
  std::unordered_map<std::string, ValueId> values_;
};

}  // namespace

Program parse_program(std::string_view text) { return Parser(text).parse(); }

}  // namespace neuron::compiler
