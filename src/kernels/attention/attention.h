// kScaled dot-product attention, forward: softmax(scale q k^T + mask) v, without storing the scores.
//
// Inputs of one float dtype; products and sums in float (bfloat16 on AVX-512-BF16: the weights of the softmax are rounded to bfloat16
// before they meet v, as in PyTorch's kernel). A row of which nothing is visible gives zeros and logsumexp 0, as PyTorch's CPU kernel does.
// Results do not depend on the number of threads. The online softmax follows Milakov & Gimelshein 2018, its tiling Dao et al. 2022
// (FlashAttention).
#pragma once

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/isa/bf16_products.h"
#include "kernels/isa/isa.h"
#include "kernels/threads.h"

namespace neuron::kernels {

// Element (b, h, i, j) is data[b * batch + h * head + i * row + j]; strides in elements, any sign, 0 for expanded dimensions.
struct AttentionTensor {
  const void* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
};

struct AttentionMask {
  enum class Kind : std::uint8_t { kNone, kBoolean, kFloat, kBFloat16, kHalf };
  Kind kind = Kind::kNone;
  const void* data = nullptr;  // boolean (one byte, true = visible) or added to the scores; [batch, query head, query, key]
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

struct Attention {
  std::int64_t batches = 0;
  std::int64_t query_heads = 0;
  std::int64_t key_heads = 0;  // divides query_heads: head h reads keys and values of head h / (query_heads / key_heads)
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t head_size = 0;   // of query and key
  std::int64_t value_size = 0;  // of value and output
  DataType type = DataType::kFloat32;
  AttentionTensor query;
  AttentionTensor key;
  AttentionTensor value;
  AttentionMask mask;
  float scale = 1;
  // Query i sees key j only if j <= i + shift (causal) and j > i + shift - window (window > 0). PyTorch's is_causal is shift 0.
  bool causal = false;
  std::int64_t window = 0;
  std::int64_t shift = 0;
  // [batch, query head, query, value_size] in `type`, and [batch, query head, query] in float if wanted; last dimensions contiguous.
  void* output = nullptr;
  std::int64_t output_batch = 0;
  std::int64_t output_head = 0;
  std::int64_t output_row = 0;
  float* logsumexp = nullptr;
  std::int64_t logsumexp_batch = 0;
  std::int64_t logsumexp_head = 0;
  std::int64_t logsumexp_row = 0;
};

// Keys and values that a mask or the causal limit hides from all queries of a tile are not read; NaN among them does not reach the result.
void attention(const Attention& call, Threads& threads);

// The same at one level that the machine runs, for tests.
void attention(const Attention& call, Threads& threads, Isa isa, Bf16Products products);

}  // namespace neuron::kernels
