// Checks that a program means something: every value is defined before it is read, once, and not read after it was released; effects name
// operands that exist; constants are never written. Run after each pass in tests and once before a program is made executable.
#pragma once

#include <stdexcept>
#include <string>

#include "compiler/program.h"

namespace neuron::compiler {

class VerificationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws VerificationError with the instruction's text.
void verify(const Program& program);

}  // namespace neuron::compiler
