// Program to text. Reading the text back (parser.h) gives an equal program, up to the numbering of values.
#pragma once

#include <string>

#include "compiler/program.h"

namespace neuron::compiler {

std::string to_string(const Instruction& instruction, const Program& program);
std::string to_string(const Program& program);

}  // namespace neuron::compiler
