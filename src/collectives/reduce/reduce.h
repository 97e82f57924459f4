// Element-wise reduction of several arrays, one per rank.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/types.h"

namespace neuron::collectives {

// output[i] = sources[0][i] op sources[1][i] op ... in this order, 0 <= i < count. `output` may be one of the sources but not overlap them
// otherwise.
// - float16, bfloat16, float8 and their complex numbers accumulate in float32 and are rounded once, at the end.
// - Integers keep their width: sums and products wrap. kAverage divides the sum once: integers truncate toward zero.
// - bool: any non-zero byte is true; kSum and kMaximum are "or", kProduct and kMinimum "and".
// - Minimum and maximum of floating point numbers are NaN when one of the numbers is.
// - kPreMultipliedSum adds factors[r] * sources[r][i], the product rounded to the type that accumulates. `factors` may be null for other
// operations.
using ReduceKernel = void (*)(const void* const* sources, int number_of_sources, const double* factors, void* output, std::size_t count);

// The kernel for this machine's instruction set; null where reducible() is false.
[[nodiscard]] ReduceKernel reduce_kernel(DataType type, ReduceOp op) noexcept;

// Every implementation that this machine can run, for tests: they give the same bits.
using ReduceTable = ReduceKernel (*)(DataType type, ReduceOp op) noexcept;
[[nodiscard]] std::vector<ReduceTable> reduce_implementations();

}  // namespace neuron::collectives
