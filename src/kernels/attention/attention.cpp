// Chooses how a call of attention runs: by the number of queries, the instruction set, and whether threads are worth while.
#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/attention_levels.h"
#include "kernels/isa/bf16_products.h"

namespace neuron::kernels {
namespace {

// With so few queries reading keys and values is the work; packing them into panels would cost more.
constexpr std::int64_t kDecodeQueries = 8;
constexpr std::int64_t kDecodeRows = 64;
// Multiplications below which waking another thread costs more than it brings (some 5 microseconds).
constexpr std::int64_t kSerialWork = std::int64_t{1} << 17;

}  // namespace

void attention(const Attention& call, Threads& threads) { attention(call, threads, current_isa(), bf16_products()); }

void attention(const Attention& call, Threads& threads, Isa isa, Bf16Products products) {
  if (call.batches * call.query_heads * call.queries == 0) {
    return;
  }
  const bool few = call.queries <= kDecodeQueries && call.queries * (call.query_heads / call.key_heads) <= kDecodeRows;
  const auto kind = few ? AttentionKind::kDecode : AttentionKind::kPrefill;
  const auto work = call.batches * call.query_heads * call.queries * call.keys * (call.head_size + call.value_size);
  Threads& team = work < kSerialWork ? single_thread() : threads;
  switch (isa) {
    case Isa::kAmx:
      if (call.type == DataType::kBFloat16 && products == Bf16Products::kTiles && kind == AttentionKind::kPrefill) {
        return attention_amx(call, team);
      }
      [[fallthrough]];
    case Isa::kAvx512Bf16:
      if (call.type == DataType::kBFloat16 && products != Bf16Products::kWiden) {
        return attention_avx512_bf16(call, kind, team);
      }
      [[fallthrough]];
    case Isa::kAvx512:
      return attention_avx512(call, kind, team);
    case Isa::kAvx2:
      return attention_avx2(call, kind, team);
    case Isa::kGeneric:
      return attention_generic(call, kind, team);
  }
}

}  // namespace neuron::kernels
