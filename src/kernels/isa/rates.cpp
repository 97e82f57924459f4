// See rates.h.
#include "kernels/isa/rates.h"

#include "kernels/isa/rates_tables.h"

namespace neuron::kernels {

#if defined(__x86_64__)

Rate float_rate(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return float_rate_generic();
    case Isa::kAvx2:
      return float_rate_avx2();
    default:
      return float_rate_avx512();
  }
}

Rate products_rate(Bf16Products products) {
  switch (products) {
    case Bf16Products::kWiden:
      return float_rate(current_isa());
    case Bf16Products::kDot:
      return bf16_dot_rate_avx512_bf16();
    case Bf16Products::kTiles:
      return bf16_tile_rate_amx();
  }
  return float_rate_generic();
}

#else

Rate float_rate(Isa) { return float_rate_generic(); }
Rate products_rate(Bf16Products) { return float_rate_generic(); }

#endif

}  // namespace neuron::kernels
