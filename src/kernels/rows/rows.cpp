// See rows.h: checks, the instruction set, and how rows are shared out among threads.
#include "kernels/rows/rows.h"

#include <cstring>
#include <stdexcept>

#include "kernels/rows/rows_levels.h"

namespace neuron::kernels {
namespace {

// Elements below which waking another thread costs more than it brings.
constexpr std::int64_t kSerialElements = std::int64_t{1} << 14;

RowKernels kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) {
    return row_kernels_avx512();
  }
  if (isa == Isa::kAvx2) {
    return row_kernels_avx2();
  }
#endif
  return row_kernels_generic();
}

template <class Call>
void share_out(void (*kernel)(const Call&, std::int64_t, std::int64_t), const Call& call, std::int64_t rows, std::int64_t size,
               Threads& threads) {
  if (rows == 0 || size == 0) {
    return;
  }
  Threads& team = rows * size < kSerialElements ? single_thread() : threads;
  team.run([&](int member, int count) {
    const auto part = share_of(rows, 1, member, count);
    kernel(call, part.begin, part.end);
  });
}

}  // namespace

void normalize(const Norm& call, Threads& threads, Isa isa) { share_out(kernels_of(isa).normalize, call, call.rows, call.size, threads); }
void normalize(const Norm& call, Threads& threads) { normalize(call, threads, current_isa()); }

void softmax(const Softmax& call, Threads& threads, Isa isa) { share_out(kernels_of(isa).softmax, call, call.rows, call.size, threads); }
void softmax(const Softmax& call, Threads& threads) { softmax(call, threads, current_isa()); }

void rope(const Rope& call, Threads& threads, Isa isa) {
  share_out(kernels_of(isa).rope, call, call.batches * call.heads * call.length, call.size, threads);
}
void rope(const Rope& call, Threads& threads) { rope(call, threads, current_isa()); }

void gated(const Gated& call, Threads& threads, Isa isa) { share_out(kernels_of(isa).gated, call, call.rows, call.size, threads); }
void gated(const Gated& call, Threads& threads) { gated(call, threads, current_isa()); }

void cross_entropy(const CrossEntropy& call, Threads& threads, Isa isa) {
  for (std::int64_t i = 0; i < call.rows; ++i) {
    if (call.target[i] != call.ignored && (call.target[i] < 0 || call.target[i] >= call.size)) {
      throw std::out_of_range("cross_entropy: target out of range");
    }
  }
  share_out(kernels_of(isa).cross_entropy, call, call.rows, call.size, threads);
}
void cross_entropy(const CrossEntropy& call, Threads& threads) { cross_entropy(call, threads, current_isa()); }

void gather(const Gather& call, Threads& threads) {
  for (std::int64_t i = 0; i < call.rows; ++i) {
    if (call.index[i] < 0 || call.index[i] >= call.table_rows) {
      throw std::out_of_range("gather: index out of range");
    }
  }
  share_out(
      +[](const Gather& given, std::int64_t begin, std::int64_t end) {
        for (auto i = begin; i < end; ++i) {
          std::memcpy(static_cast<char*>(given.output) + i * given.row_bytes,
                      static_cast<const char*>(given.table) + given.index[i] * given.row_bytes, given.row_bytes);
        }
      },
      call, call.rows, call.row_bytes, threads);
}

}  // namespace neuron::kernels
