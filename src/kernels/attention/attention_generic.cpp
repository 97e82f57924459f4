// See attention_levels.h.
#include "kernels/attention/run.h"

namespace neuron::kernels {

void attention_generic(const Attention& call, AttentionKind kind, Threads& threads) { run_attention_of_type(call, kind, threads); }

}  // namespace neuron::kernels
