// Chooses the reductions for the instruction set of this machine, once.
#include "collectives/reduce/reduce.h"

#include "collectives/reduce/reduce_tables.h"

namespace neuron::collectives {

std::vector<ReduceTable> reduce_implementations() {
  std::vector<ReduceTable> implementations{&reduce_generic};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    implementations.push_back(&reduce_avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
      implementations.push_back(&reduce_avx512);
    }
  }
#endif
  return implementations;
}

ReduceKernel reduce_kernel(DataType type, ReduceOp op) noexcept {
  static const ReduceTable chosen = reduce_implementations().back();
  return chosen(type, op);
}

}  // namespace neuron::collectives
