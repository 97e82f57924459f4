// The free blocks of one pool, binned by size class. Finding the bin is a bitmap scan; the best block is taken from it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/memory/block.h"
#include "runtime/memory/size_class.h"

namespace neuron::runtime {

// Guarded by the allocator's lock.
class BlockBins {
 public:
  void insert(Block* block) noexcept;
  void remove(Block* block) noexcept;
  // The smallest block with slot >= `slot` (within the first bin that has one), removed from the bins; nullptr when there is none.
  Block* take(std::size_t slot) noexcept;

 private:
  static constexpr std::size_t kWordBits = 64;
  static constexpr std::size_t kWords = (size_class::kCount + kWordBits - 1) / kWordBits;

  // First non-empty bin at or after `index`, or kCount.
  [[nodiscard]] std::size_t next_filled(std::size_t index) const noexcept;

  std::array<Block*, size_class::kCount> heads_{};
  std::array<std::uint64_t, kWords> filled_{};
};

}  // namespace neuron::runtime
