// Makes `neuron::matmul` of the matrix products whose types our kernels multiply, and moves into them what would otherwise be another pass
// over memory:
//   a bias or another addend, and a residual    add(mm(x, w), b)              gelu(addmm(b, x, w)) + h
//   relu, silu and gelu                         gelu(addmm(b, x, w))
//   gated pairs                                 mul(silu(mm(x, w)), mm(x, v))
//   the choice of matrices                      bmm(index(w, [i]), x)         nothing is copied
// Results that somebody else reads stay as they are, and so do values that are cast. Where eager PyTorch rounds each of the operators, these
// round once.
#pragma once

#include "compiler/program.h"

namespace neuron::compiler {

// How many instructions became products or part of one.
int fuse_matmul(Program& program);

}  // namespace neuron::compiler
