// Tokens of the text form of programs.
#include "compiler/lexer.h"

#include <cctype>

namespace neuron::compiler {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_word(char c) { return is_word_start(c) || is_digit(c) || c == ':' || c == '.' || c == '@' || c == '-'; }
bool is_number(char c) { return is_digit(c) || c == '.' || c == 'e' || c == '+' || c == '-'; }

}  // namespace

void Lexer::skip_blanks_and_comments() {
  while (position_ < source_.size()) {
    const char c = source_[position_];
    if (c == '\n') {
      ++line_;
    } else if (c == '#') {
      position_ = source_.find('\n', position_);
      position_ = position_ == std::string_view::npos ? source_.size() : position_;
      continue;
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      return;
    }
    ++position_;
  }
}

void Lexer::read_string() {
  for (++position_; position_ < source_.size() && source_[position_] != '"'; ++position_) {
    char c = source_[position_];
    if (c == '\\' && position_ + 1 < source_.size()) {
      c = source_[++position_];
      c = c == 'n' ? '\n' : c;
    }
    token_.text += c;
  }
  if (position_ == source_.size()) {
    fail("the string does not end");
  }
  ++position_;
}

void Lexer::advance() {
  skip_blanks_and_comments();
  token_ = Token{Kind::kEnd, {}, line_};
  if (position_ == source_.size()) {
    return;
  }
  const char c = source_[position_];
  const auto take_while = [this](auto&& belongs) {
    while (position_ < source_.size() && belongs(source_[position_])) {
      token_.text += source_[position_++];
    }
  };
  if (c == '"') {
    token_.kind = Kind::kString;
    read_string();
  } else if (c == '%') {
    token_.kind = Kind::kValue;
    ++position_;
    take_while(is_digit);
  } else if (is_digit(c) || c == '-') {
    token_.kind = Kind::kNumber;
    if (source_.substr(position_, 4) == "-inf") {
      token_.text = "-inf";
      position_ += 4;
    } else {
      take_while(is_number);
    }
  } else if (is_word_start(c)) {
    token_.kind = Kind::kWord;
    take_while(is_word);
    // "%0: f32" and "releases(%1): f32" never reach here, but "ordered: f32" does: a colon at the end belongs to what follows.
    while (token_.text.size() > 1 && token_.text.back() == ':') {
      token_.text.pop_back();
      --position_;
    }
  } else {
    token_.kind = Kind::kPunctuation;
    token_.text = c;
    ++position_;
  }
}

Lexer::Token Lexer::take() {
  Token taken = std::move(token_);
  advance();
  return taken;
}

bool Lexer::take_if(std::string_view text) {
  if ((token_.kind == Kind::kPunctuation || token_.kind == Kind::kWord) && token_.text == text) {
    advance();
    return true;
  }
  return false;
}

void Lexer::expect(std::string_view text) {
  if (!take_if(text)) {
    fail("expected '" + std::string(text) + "', found '" + token_.text + "'");
  }
}

}  // namespace neuron::compiler
