// Reductions for AVX2.
#if defined(__x86_64__)
#define NEURON_REDUCE_TABLE reduce_avx2
#include "collectives/reduce/reduce_impl.h"
#endif
