// Attention of many queries with AMX tiles of bfloat16.
#include "kernels/attention/attention_levels.h"
#include "kernels/attention/prefill.h"

namespace neuron::kernels {

void attention_amx(const Attention& call, Threads& threads) { Prefill<BFloat16>(call).run(threads); }

}  // namespace neuron::kernels
