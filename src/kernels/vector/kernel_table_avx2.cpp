// The interpreter's kernels for AVX2 with FMA and F16C.
#include "kernels/vector/kernel_table_impl.h"

namespace neuron::kernels::vector {

const KernelTable& kernel_table_avx2() noexcept {
  static constexpr KernelTable kTable = make_kernel_table("avx2");
  return kTable;
}

}  // namespace neuron::kernels::vector
