// Chooses the interpreter's kernels for the instruction set of this machine, once.
#include "kernels/vector/kernel_table.h"

#include <algorithm>
#include <iterator>

namespace neuron::kernels::vector {

std::vector<const KernelTable*> kernel_tables() {
  std::vector<const KernelTable*> tables{&kernel_table_generic()};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    tables.push_back(&kernel_table_avx2());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    tables.push_back(&kernel_table_avx512());
  }
#endif
  return tables;
}

const KernelTable& best_kernel_table() noexcept {
  static const KernelTable& chosen = *kernel_tables().back();
  return chosen;
}

bool offers(Op op, Lane lane) noexcept {
  const auto& lanes = best_kernel_table().elements[static_cast<int>(op)];
  const auto has = [&](int index) {
    return std::any_of(std::begin(lanes[index][0]), std::end(lanes[index][0]), [](auto kernel) { return kernel != nullptr; });
  };
  for (int other = 0; other < kLaneCount; ++other) {
    if (has(other)) {
      return has(static_cast<int>(lane));
    }
  }
  return true;
}

}  // namespace neuron::kernels::vector
