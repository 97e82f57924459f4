// A region made executable: steps over chunks that stay in the first-level cache.
//
// Rows are the lines along the region's last dimension. Where they are short, a unit of work is a block of whole rows; where they are long,
// it is one row (or, if no step needs the row as a whole, a tile of it) that is worked off in chunks. A reduction over a long row ends a
// *phase*: what depends on it runs in another sweep over the row, which loads its operands again or finds what was kept in a buffer.
//
// Steps work on vector registers (one element per element of the chunk), row registers (one per row) and numbers. Loads of float32, float64
// and int64 that lie densely are no copies: the register is the memory itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/vector/kernel_table.h"
#include "kernels/vector/region.h"

namespace neuron::kernels::vector {

// Outer strides count rows' dimensions, `inner` is the stride along the row; all in elements.
struct RowAccess {
  std::vector<std::int64_t> outer;
  std::int64_t inner = 0;
  std::int64_t offset = 0;
  int tensor = -1;  // inputs, then results; -1: counts only
  int element_size = 1;
  bool dense = false;  // consecutive rows of a block form one array
};

struct Ref {
  enum class Kind : std::uint8_t { kNone, kVector, kRow, kNumber };
  Kind kind = Kind::kNone;
  std::uint8_t size = 4;  // bytes of an element
  int index = 0;
};

struct Step {
  enum class Kind : std::uint8_t {
    kLoad,      // memory to vector
    kBind,      // the vector is the memory
    kLoadRows,  // one element of each row to a row register
    kIota,
    kIotaRows,
    kStore,  // vector to memory
    kStoreRows,
    kElements,     // vectors, rows and numbers to a vector
    kElementRows,  // rows and numbers to a row register
    kSpread,       // a row register to a vector
    kReduce,
    kRotate,
  };
  Kind kind = Kind::kElements;
  ElementKernel element = nullptr;
  LoadKernel load = nullptr;
  StoreKernel store = nullptr;
  ReduceKernel reduce = nullptr;
  int access = -1;
  bool by_rows = false;  // an operand is a row register
  Ref out;
  Ref arguments[3];
};

class Plan {
 public:
  // Throws std::invalid_argument if the region is malformed (region.h) or has an operation that its lanes lack.
  explicit Plan(const Region& region, const KernelTable& table = best_kernel_table());

  // Independent pieces of work, and about how many elements each has.
  std::int64_t units() const { return units_; }
  std::int64_t unit_elements() const { return unit_elements_; }
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  std::size_t step_count() const;

  // Does the units [first, last). `tensors`: pointers to the element at offset 0 of each input, then of each result. `scratch`:
  // scratch_bytes() bytes aligned to 64, not shared with another thread.
  void run(void* const* tensors, std::int64_t first, std::int64_t last, std::byte* scratch) const;

 private:
  friend class Lowering;
  struct Phase {
    std::vector<Step> before;  // once per block
    std::vector<Step> body;    // per chunk
  };
  struct Vector {
    std::size_t offset = 0;  // in the scratch memory
    std::uint8_t size = 4;
    bool whole_row = false;  // kept for another phase
    bool bound = false;      // is memory of a tensor
  };
  struct Block;

  void run_unit(Block& block, std::int64_t unit) const;
  void run_steps(const std::vector<Step>& steps, Block& block) const;
  void run_elements(const Step& step, Block& block) const;
  std::int64_t offset_of(const RowAccess& access, std::int64_t row) const;

  const KernelTable* table_;
  std::vector<std::int64_t> outer_sizes_;
  std::int64_t row_size_ = 1;  // elements of a row
  std::int64_t row_count_ = 1;
  std::int64_t rows_per_block_ = 1;
  std::int64_t tile_ = 0;   // elements of a row that a unit does; row_size_ where rows are whole
  std::int64_t chunk_ = 0;  // elements of a row per sweep of the steps
  std::int64_t tiles_per_row_ = 1;
  std::int64_t units_ = 0;
  std::int64_t unit_elements_ = 0;
  std::vector<RowAccess> accesses_;
  std::vector<Phase> phases_;
  std::vector<Vector> vectors_;
  std::vector<std::size_t> row_offsets_;  // of row registers in the scratch memory
  std::vector<std::int64_t> numbers_;     // 8 bytes each, in the lanes' formats
  std::size_t scratch_bytes_ = 0;
};

}  // namespace neuron::kernels::vector
