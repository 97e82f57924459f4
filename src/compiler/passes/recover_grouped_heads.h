// Attention with fewer key-value heads than query heads: models repeat the heads,
//     %1 = aten::unsqueeze(%k, 2)   %2 = aten::expand(%1, [b, h, r, s, d])   %3 = aten::clone(%2)   %4 = aten::_unsafe_view(%3, [b, h * r,
//     s, d])
// which copies the whole key-value cache r times in every step. The attention operator takes the heads as they are, so it gets %k.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// Returns how many operands were replaced.
int recover_grouped_heads(Program& program);

}  // namespace neuron::compiler
