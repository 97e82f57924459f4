// What is known of a region's nodes before they become steps: which have one value per row, which are used, and in which sweep.
#pragma once

#include <vector>

#include "kernels/vector/region.h"
#include "kernels/vector/row_layout.h"

namespace neuron::kernels::vector {

struct NodeFacts {
  bool row = false;  // one value per row
  bool used = false;
  bool kept = false;  // in a buffer, for a later phase: dearer to compute again than to keep
  int phase = 0;      // the sweep in which it can be computed
  int available = 0;  // the sweep in which others can read it
  int uses = 0;
};

// One for each node of the region.
std::vector<NodeFacts> facts_of(const Region& region, const RowLayout& layout);

}  // namespace neuron::kernels::vector
