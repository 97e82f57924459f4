// Gives steps their memory.
#pragma once

#include "kernels/vector/row_layout.h"
#include "kernels/vector/steps.h"

namespace neuron::kernels::vector {

// Places all registers in the scratch memory; vector registers share it where their lives do not meet.
void assign_registers(Steps& steps, const RowLayout& layout);

}  // namespace neuron::kernels::vector
