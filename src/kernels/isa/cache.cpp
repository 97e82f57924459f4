// See cache.h.
#include "kernels/isa/cache.h"

#include <unistd.h>

namespace neuron::kernels {

int first_level_ways() noexcept {
  static const int ways = [] {
#if defined(_SC_LEVEL1_DCACHE_ASSOC)
    if (const auto told = sysconf(_SC_LEVEL1_DCACHE_ASSOC); told > 0) {
      return static_cast<int>(told);
    }
#endif
    return 8;
  }();
  return ways;
}

}  // namespace neuron::kernels
