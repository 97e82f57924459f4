// See attention_levels.h.
#include "kernels/attention/run.h"

namespace neuron::kernels {

void attention_avx512_bf16(const Attention& call, AttentionKind kind, Threads& threads) { run_attention<BFloat16>(call, kind, threads); }

}  // namespace neuron::kernels
