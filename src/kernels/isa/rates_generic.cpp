// The rate of multiply-adds at this level.
#include "kernels/isa/rates_impl.h"
#include "kernels/isa/rates_tables.h"

namespace neuron::kernels {

Rate float_rate_generic() { return {&run_rounds<MultiplyAdd>, kMultiplyAddsPerRound}; }

}  // namespace neuron::kernels
