// Which of a region's dimensions are rows, and how rows are cut.
#include "kernels/vector/row_layout.h"

#include <algorithm>
#include <numeric>

namespace neuron::kernels::vector {
namespace {

constexpr std::int64_t kChunk = 1024;        // elements: a float32 register of 4 KiB, ten of them fit the first-level cache
constexpr std::int64_t kTile = 16 * kChunk;  // of a long row, where no step needs the row as a whole

bool any_node(const Region& region, bool (*is)(Op)) {
  return std::any_of(region.nodes.begin(), region.nodes.end(), [&](const Node& node) { return is(node.op); });
}

bool needs_whole_rows(Op op) { return is_reduction(op) || is_rotation(op); }

// Whether every tensor lets the two dimensions count as one.
bool may_join(const Region& region, std::size_t outer, std::size_t inner) {
  const auto joins = [&](const Access& access) { return access.strides[outer] == access.strides[inner] * region.sizes[inner]; };
  return std::all_of(region.nodes.begin(), region.nodes.end(),
                     [&](const Node& node) { return !is_source(node.op) || joins(node.access); }) &&
         std::all_of(region.stores.begin(), region.stores.end(), [&](const Store& store) { return joins(store.access); });
}

}  // namespace

// Dimensions go in the order of the first result's memory, neighbours joined where that is possible.
RowLayout::RowLayout(const Region& region) {
  const bool fixed_last = any_node(region, needs_whole_rows);
  const std::size_t rank = region.sizes.size();
  std::vector<std::size_t> order;
  for (std::size_t dim = 0; dim < rank; ++dim) {
    if (region.sizes[dim] != 1 && !(fixed_last && dim + 1 == rank)) {
      order.push_back(dim);
    }
  }
  const Access& leading = region.stores.front().access;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return leading.strides[a] > leading.strides[b]; });
  if (fixed_last) {
    order.push_back(rank - 1);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool last_fixed = fixed_last && i + 1 == order.size();
    if (!groups_.empty() && !last_fixed && may_join(region, order[i - 1], order[i])) {
      groups_.back() = order[i];
      outer_sizes.back() *= region.sizes[order[i]];
    } else {
      groups_.push_back(order[i]);
      outer_sizes.push_back(region.sizes[order[i]]);
    }
  }
  if (!outer_sizes.empty()) {
    row_size = outer_sizes.back();
    outer_sizes.pop_back();
  }
  row_count = std::accumulate(outer_sizes.begin(), outer_sizes.end(), std::int64_t{1}, std::multiplies<>());
  choose_blocks(region);
}

void RowLayout::choose_blocks(const Region& region) {
  const bool rows_matter = any_node(region, needs_whole_rows);
  whole_rows = row_size <= kChunk || any_node(region, is_rotation);
  phased = rows_matter && !whole_rows;
  if (whole_rows) {
    rows_per_block = std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(row_size, 1));
    chunk = tile = std::max<std::int64_t>(row_size, 1);
  } else {
    chunk = kChunk;
    tile = rows_matter ? row_size : kTile;
    tiles_per_row = (row_size + tile - 1) / tile;
  }
  rows_per_block = std::min(rows_per_block, std::max<std::int64_t>(row_count, 1));
  if (row_count > 0 && row_size > 0) {
    units = (row_count + rows_per_block - 1) / rows_per_block * tiles_per_row;
  }
  unit_elements = rows_per_block * std::min(tile, std::max<std::int64_t>(row_size, 1));
}

RowAccess RowLayout::access(const Access& access, int tensor, int element_size) const {
  RowAccess result;
  for (std::size_t i = 0; i + 1 < groups_.size(); ++i) {
    result.outer.push_back(access.strides[groups_[i]]);
  }
  result.inner = groups_.empty() ? 0 : access.strides[groups_.back()];
  result.offset = access.offset;
  result.tensor = tensor;
  result.element_size = element_size;
  result.dense =
      rows_per_block == 1 || (result.inner == 1 && outer_sizes.size() <= 1 && (result.outer.empty() || result.outer[0] == row_size));
  return result;
}

}  // namespace neuron::kernels::vector
