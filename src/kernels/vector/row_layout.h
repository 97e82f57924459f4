// How a region's elements are divided into rows, blocks of rows and chunks of rows.
//
// Rows are the lines along the region's last dimension. Where they are short, a unit of work is a block of whole rows; where they are long,
// it is one row (or, if no step needs the row as a whole, a tile of it) that is worked off in chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

class RowLayout {
 public:
  RowLayout() = default;
  explicit RowLayout(const Region& region);

  std::vector<std::int64_t> outer_sizes;  // of the dimensions that rows are counted in
  std::int64_t row_size = 1;              // elements of a row
  std::int64_t row_count = 1;
  std::int64_t rows_per_block = 1;
  std::int64_t tile = 0;   // elements of a row that a unit does; row_size where rows are whole
  std::int64_t chunk = 0;  // elements of a row per sweep of the steps
  std::int64_t tiles_per_row = 1;
  std::int64_t units = 0;
  std::int64_t unit_elements = 0;
  bool whole_rows = true;  // a chunk is whole rows
  bool phased = false;     // a reduction needs a sweep over its row before anything can use it

  // A region's access in these rows. `tensor`: -1 for one that only counts.
  RowAccess access(const Access& access, int tensor, int element_size) const;
  bool is_constant_along_row(const Access& access) const { return groups_.empty() || access.strides[groups_.back()] == 0; }

 private:
  void choose_blocks(const Region& region);

  std::vector<std::size_t> groups_;  // the innermost of the region's dimensions that each of these is made of
};

}  // namespace neuron::kernels::vector
