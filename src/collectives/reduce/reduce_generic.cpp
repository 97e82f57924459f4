// Reductions for the baseline instruction set.
#define NEURON_REDUCE_TABLE reduce_generic
#include "collectives/reduce/reduce_impl.h"
