// Puts element-wise operators, reductions over the last dimension and compositions of them together to fused regions (neuron::fused).
//
// Greedy, in program order: an instruction joins the regions of its operands wherever these iterate over the same dimensions, in whatever
// order and with whatever dimensions of size 1 between (transposes, unsqueezes and expands vanish into index arithmetic), or over the same
// but the last (values per row). It does not where that would make the program circular, reorder a read past a write, or make a region
// larger than kLargestRegion. Everything is computed once; what others need is a result of the region. Views of tensors from outside are
// read through: operands are the tensors that the views start from, with offset and strides in the body.
//
// Copies that change nothing but the layout stay with ATen unless they join something.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// Returns how many instructions went into regions.
int fuse_regions(Program& program);

}  // namespace neuron::compiler
