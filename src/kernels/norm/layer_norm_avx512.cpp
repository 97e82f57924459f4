// See layer_norm_levels.h.
#include "kernels/norm/layer_norm_levels.h"
#include "kernels/norm/layer_norm_rows.h"

namespace neuron::kernels {

LayerNormRows layer_norm_avx512() { return &layer_norm_rows; }

}  // namespace neuron::kernels
