// See layer_norm.h: the instruction set, and how rows are shared out among threads.
#include "kernels/norm/layer_norm.h"

#include "kernels/norm/layer_norm_levels.h"

namespace neuron::kernels {
namespace {

// Elements below which waking another thread costs more than it brings.
constexpr std::int64_t kSerialElements = std::int64_t{1} << 14;

LayerNormRows rows_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) {
    return layer_norm_avx512();
  }
  if (isa == Isa::kAvx2) {
    return layer_norm_avx2();
  }
#endif
  return layer_norm_generic();
}

}  // namespace

void layer_norm(const LayerNorm& call, Threads& threads, Isa isa) {
  if (call.rows == 0 || call.size == 0) {
    return;
  }
  const LayerNormRows compute = rows_of(isa);
  Threads& team = call.rows * call.size < kSerialElements ? single_thread() : threads;
  team.run([&](int member, int count) {
    const auto part = share_of(call.rows, 1, member, count);
    compute(call, part.begin, part.end);
  });
}

void layer_norm(const LayerNorm& call, Threads& threads) { layer_norm(call, threads, current_isa()); }

}  // namespace neuron::kernels
