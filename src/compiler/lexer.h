// Tokens of the text form of programs, with the line they stand on for error messages.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace neuron::compiler {

class ParseError : public std::runtime_error {
 public:
  ParseError(int line, const std::string& what) : std::runtime_error("line " + std::to_string(line) + ": " + what) {}
};

// Hands out one token at a time: a word ([A-Za-z_][A-Za-z0-9_:.@-]*), a number, a quoted string, a value (%7), or one punctuation mark.
class Lexer {
 public:
  enum class Kind { kEnd, kWord, kNumber, kString, kValue, kPunctuation };
  struct Token {
    Kind kind = Kind::kEnd;
    std::string text;  // without the quotes of a string or the % of a value
    int line = 1;
  };

  explicit Lexer(std::string_view source) : source_(source) { advance(); }

  const Token& peek() const { return token_; }
  Token take();
  // Takes the token if it is this punctuation mark or word.
  bool take_if(std::string_view text);
  void expect(std::string_view text);
  [[noreturn]] void fail(const std::string& what) const { throw ParseError(token_.line, what); }

 private:
  void advance();
  void skip_blanks_and_comments();
  void read_string();

  std::string_view source_;
  std::size_t position_ = 0;
  int line_ = 1;
  Token token_;
};

}  // namespace neuron::compiler
