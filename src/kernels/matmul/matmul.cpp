// The instruction set, batches, and which operand is A.
#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <utility>

#include "kernels/matmul/matmul_tables.h"

namespace neuron::kernels {
namespace {

using Level = void (*)(const Matmul&, Threads&, Bf16Products);

Level level_of(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kGeneric:
      return &matmul_generic;
    case Isa::kAvx2:
      return &matmul_avx2;
    case Isa::kAvx512:
      return &matmul_avx512;
    case Isa::kAvx512Bf16:
      return &matmul_avx512_bf16;
    case Isa::kAmx:
      return &matmul_amx;
  }
#endif
  return &matmul_generic;
}

MatrixView transposed(MatrixView view) {
  std::swap(view.row_stride, view.column_stride);
  return view;
}

// C^T = B^T * A^T. The ways to multiply are made for few rows and C contiguous along n.
void exchange_operands(Matmul& problem) {
  std::swap(problem.m, problem.n);
  std::swap(problem.c_row_stride, problem.c_column_stride);
  problem.epilogue.addend.view = transposed(problem.epilogue.addend.view);
  problem.epilogue.residual.view = transposed(problem.epilogue.residual.view);
  problem.a = std::exchange(problem.b, transposed(problem.a));
  problem.a = transposed(problem.a);
}

bool better_exchanged(const Matmul& problem) {
  constexpr std::int64_t kFew = 8;
  if (problem.gate.data != nullptr) {
    return false;
  }
  if (problem.n <= kFew || problem.m <= kFew) {
    return problem.n < problem.m;
  }
  return problem.c_column_stride != 1 && problem.c_row_stride == 1;
}

const void* advanced(const void* data, DataType type, std::int64_t elements) {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + elements * (type == DataType::kFloat32 ? 4 : 2);
}

// Whether the work takes longer than waking threads: a few microseconds.
bool worth_threads(const Matmul& problem) {
  constexpr double kMultiplyAdds = 1 << 18;
  constexpr double kElements = 1 << 15;
  const auto elements =
      static_cast<double>(problem.batch) * static_cast<double>(problem.k) * static_cast<double>(std::max(problem.m, problem.n));
  return elements > kElements || elements * static_cast<double>(std::min(problem.m, problem.n)) > kMultiplyAdds;
}

}  // namespace

Matmul entry_of(const Matmul& problem, std::int64_t index) {
  Matmul entry = problem;
  const auto move = [index](MatrixView& view, DataType type) { view.data = advanced(view.data, type, index * view.batch_stride); };
  move(entry.a, entry.type);
  move(entry.b, entry.type);
  move(entry.gate, entry.type);
  move(entry.epilogue.addend.view, entry.epilogue.addend.type);
  move(entry.epilogue.residual.view, entry.epilogue.residual.type);
  entry.batch = 1;
  entry.c = const_cast<void*>(advanced(entry.c, entry.c_type, index * entry.c_batch_stride));
  return entry;
}

void matmul(const Matmul& problem, Threads& threads, Isa isa, Bf16Products products) {
  if (problem.batch == 0 || problem.m == 0 || problem.n == 0) {
    return;
  }
  Matmul ordered = problem;
  if (better_exchanged(problem)) {
    exchange_operands(ordered);
  }
  const auto level = level_of(isa);
  // Whole entries for each thread if they divide well or are small; else all threads work on one entry after the other.
  const int count = threads.count();
  const auto products_per_entry = static_cast<double>(ordered.m) * static_cast<double>(ordered.n) * static_cast<double>(ordered.k);
  constexpr double kSmall = 1 << 20;
  if (ordered.batch > 1 && (ordered.batch % count == 0 || ordered.batch >= 8 * count || products_per_entry < kSmall)) {
    threads.run([&](int member, int size) {
      const auto [begin, end] = share_of(ordered.batch, 1, member, size);
      for (auto index = begin; index < end; ++index) {
        level(entry_of(ordered, index), single_thread(), products);
      }
    });
    return;
  }
  for (std::int64_t index = 0; index < ordered.batch; ++index) {
    level(entry_of(ordered, index), threads, products);
  }
}

void matmul(const Matmul& problem, Threads& threads) {
  matmul(problem, worth_threads(problem) ? threads : single_thread(), current_isa(),
         problem.type == DataType::kBFloat16 ? bf16_products() : Bf16Products::kWiden);
}

}  // namespace neuron::kernels
