// Reductions for AVX-512.
#if defined(__x86_64__)
#define NEURON_REDUCE_TABLE reduce_avx512
#include "collectives/reduce/reduce_impl.h"
#endif
