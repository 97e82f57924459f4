// See layer_norm_levels.h.
#include "kernels/norm/layer_norm_levels.h"
#include "kernels/norm/layer_norm_rows.h"

namespace neuron::kernels {

LayerNormRows layer_norm_generic() { return &layer_norm_rows; }

}  // namespace neuron::kernels
