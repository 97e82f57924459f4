// Finds the last use of every value and writes it into the program: `releases` of instructions, `entry_releases` for inputs that nothing
// reads. The executor drops a value there, so its memory goes back to the caching allocator and is taken again by a later instruction.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// Replaces any releases that the program has. Constants and outputs are never released.
void plan_releases(Program& program);

}  // namespace neuron::compiler
