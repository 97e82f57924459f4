// Where our matrix kernels win over the CPU's: measured, in one place.
#pragma once

#include "kernels/matmul/matmul.h"

namespace neuron::ops {

bool kernels_win(const kernels::Matmul& problem);

}  // namespace neuron::ops
