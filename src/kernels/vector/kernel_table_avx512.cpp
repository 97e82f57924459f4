// The interpreter's kernels for AVX-512 (F, DQ, BW, VL).
#include "kernels/vector/kernel_table_impl.h"

namespace neuron::kernels::vector {

const KernelTable& kernel_table_avx512() noexcept {
  static constexpr KernelTable kTable = make_kernel_table("avx512");
  return kTable;
}

}  // namespace neuron::kernels::vector
