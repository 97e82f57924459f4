// Removes instructions whose results nobody reads and that do nothing else (what other passes leave behind).
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// Returns how many instructions were removed.
int remove_dead_code(Program& program);

}  // namespace neuron::compiler
