// The interpreter's kernels for any machine.
#include "kernels/vector/kernel_table_impl.h"

namespace neuron::kernels::vector {

const KernelTable& kernel_table_generic() noexcept {
  static constexpr KernelTable kTable = make_kernel_table("generic");
  return kTable;
}

}  // namespace neuron::kernels::vector
