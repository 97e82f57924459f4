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

Rate bf16_dot_rate() { return bf16_dot_rate_avx512_bf16(); }

#else

Rate float_rate(Isa) { return float_rate_generic(); }
Rate bf16_dot_rate() { return float_rate_generic(); }  // never called

#endif

}  // namespace neuron::kernels
