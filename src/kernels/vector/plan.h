// A region made executable: steps (steps.h) over chunks of rows (row_layout.h) that stay in the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vector/kernel_table.h"
#include "kernels/vector/region.h"
#include "kernels/vector/row_layout.h"
#include "kernels/vector/steps.h"

namespace neuron::kernels::vector {

class Plan {
 public:
  // Throws std::invalid_argument if the region is malformed (region.h) or has an operation that its lanes lack.
  explicit Plan(const Region& region, const KernelTable& table = best_kernel_table());

  // Independent pieces of work, and about how many elements each has.
  std::int64_t units() const { return layout_.units; }
  std::int64_t unit_elements() const { return layout_.unit_elements; }
  std::size_t scratch_bytes() const { return steps_.scratch_bytes; }
  std::size_t step_count() const;

  // Does the units [first, last). `tensors`: pointers to the element at offset 0 of each input, then of each result. `scratch`:
  // scratch_bytes() bytes aligned to 64, not shared with another thread.
  void run(void* const* tensors, std::int64_t first, std::int64_t last, std::byte* scratch) const;

 private:
  struct Block;

  void run_unit(Block& block, std::int64_t unit) const;
  void run_steps(const std::vector<Step>& steps, Block& block) const;
  void run_elements(const Step& step, Block& block) const;
  std::int64_t offset_of(const RowAccess& access, std::int64_t row) const;

  const KernelTable* table_;
  RowLayout layout_;
  Steps steps_;
};

}  // namespace neuron::kernels::vector
