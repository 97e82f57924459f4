// Text to program; throws ParseError with the line. Values are renumbered in order of definition.
#pragma once

#include <string_view>

#include "compiler/lexer.h"
#include "compiler/program.h"

namespace neuron::compiler {

Program parse_program(std::string_view text);

}  // namespace neuron::compiler
