// See rows_levels.h.
#include "kernels/rows/elementwise.h"
#include "kernels/rows/normalize.h"
#include "kernels/rows/rows_levels.h"
#include "kernels/rows/softmax.h"

namespace neuron::kernels {

RowKernels row_kernels_generic() { return {&normalize_rows, &softmax_rows, &rope_rows, &gated_rows, &cross_entropy_rows}; }

}  // namespace neuron::kernels
