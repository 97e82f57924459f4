// The templates of attention for one instruction set: included by each translation unit of attention_levels.h.
#pragma once

#include "kernels/attention/attention_levels.h"
#include "kernels/attention/decode.h"
#include "kernels/attention/prefill.h"

namespace neuron::kernels {
namespace {

template <class T>
void run_attention(const Attention& call, AttentionKind kind, Threads& threads) {
  if (kind == AttentionKind::kDecode) {
    Decode<T>(call).run(threads);
  } else {
    Prefill<T>(call).run(threads);
  }
}

inline void run_attention_of_type(const Attention& call, AttentionKind kind, Threads& threads) {
  switch (call.type) {
    case DataType::kFloat32:
      return run_attention<float>(call, kind, threads);
    case DataType::kBFloat16:
      return run_attention<BFloat16>(call, kind, threads);
    case DataType::kFloat16:
      return run_attention<Half>(call, kind, threads);
  }
}

}  // namespace
}  // namespace neuron::kernels
