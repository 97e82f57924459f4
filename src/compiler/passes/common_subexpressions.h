// Computes equal things once: a language model's layers build the same attention mask and positions over and over.
//
// Two instructions are equal if opcode and operands are. The second is dropped when nothing could tell the results apart: neither result,
// nor memory shared with it, leaves the program or is written, and the operands are not written in between.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// Returns how many instructions were dropped.
int merge_common_subexpressions(Program& program);

}  // namespace neuron::compiler
