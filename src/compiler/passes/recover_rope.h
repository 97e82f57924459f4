// Finds the rotation of halves in rotary embeddings, which graphs spell as
//     %h = aten::slice.Tensor(%x, d, n/2, ...)      %l = aten::slice.Tensor(%x, d, 0, n/2, 1)
//     %r = aten::cat([aten::neg(%h), %l], -1)
// and its gradient, which they spell as the sum of two slice_backward, and makes one instruction of each:
//     %r = neuron::rotate_half(%x)      %g = neuron::rotate_half_back(%y)
// These have no kernel of their own: fuse_regions must run afterwards, and always takes them.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// Returns how many rotations were found.
int recover_rope(Program& program);

}  // namespace neuron::compiler
