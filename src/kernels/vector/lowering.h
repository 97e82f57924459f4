// Region to steps.
#pragma once

#include "kernels/vector/kernel_table.h"
#include "kernels/vector/region.h"
#include "kernels/vector/row_layout.h"
#include "kernels/vector/steps.h"

namespace neuron::kernels::vector {

// Throws std::invalid_argument if the region has an operation that its lanes lack. Registers have no memory yet (registers.h).
Steps lower(const Region& region, const RowLayout& layout, const KernelTable& table);

}  // namespace neuron::kernels::vector
