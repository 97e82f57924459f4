// Attention as each instruction set computes it, one translation unit each. Only attention.cpp may call them, after asking the CPU.
#pragma once

#include "kernels/attention/attention.h"

namespace neuron::kernels {

// Few queries: see decode.h; many: see prefill.h.
enum class AttentionKind : std::uint8_t { kDecode, kPrefill };

void attention_generic(const Attention& call, AttentionKind kind, Threads& threads);
void attention_avx2(const Attention& call, AttentionKind kind, Threads& threads);
void attention_avx512(const Attention& call, AttentionKind kind, Threads& threads);
void attention_avx512_bf16(const Attention& call, AttentionKind kind, Threads& threads);  // bfloat16 only, by products of pairs
void attention_amx(const Attention& call, Threads& threads);                              // prefill of bfloat16 only

}  // namespace neuron::kernels
