// Chooses the random fills for the instruction set of this machine, once.
#include "kernels/random/random_fill.h"

#include "kernels/random/random_fill_tables.h"

namespace neuron::kernels {

std::vector<const RandomFill*> random_fill_implementations() {
  std::vector<const RandomFill*> implementations{&random_fill_generic()};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) implementations.push_back(&random_fill_avx2());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    implementations.push_back(&random_fill_avx512());
  }
#endif
  return implementations;
}

const RandomFill& random_fill() noexcept {
  static const RandomFill& chosen = *random_fill_implementations().back();
  return chosen;
}

}  // namespace neuron::kernels
