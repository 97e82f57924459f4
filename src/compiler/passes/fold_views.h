// Makes one view of a chain of views: what a chain of transposes, reshapes and slices gives is known by sizes, strides and offset.
//     %3 = aten::transpose.int(%2, 1, 2) views(0)   of   %2 = aten::view(%1, [1, 8, 4, 16]) views(0)
// becomes %3 = neuron::view(%1, 0) views(0), whose type says the rest; the number is the offset in elements.
//
// Only where nobody could tell: the memory is not written in the program, and no value that may share it leaves the program.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

inline constexpr const char* kView = "neuron::view";

// Returns how many views were folded.
int fold_views(Program& program);

}  // namespace neuron::compiler
