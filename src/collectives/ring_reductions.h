// Collectives that combine numbers, through rings: what each rank does after the ranks have announced an operation and agreed on it. All
// combine in the order of ranks, so that every way of the data gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/reduce/combiner.h"
#include "collectives/ring_transfer.h"
#include "collectives/types.h"

namespace neuron::collectives {

class RingReductions {
 public:
  RingReductions(RingTransfer& transfer, Combiner& combiner) : transfer_(transfer), combiner_(combiner) {}

  // Announces what all_reduce() needs.
  void announce_all_reduce(Announcement& mine, const void* input, std::size_t bytes);
  void all_reduce(ConstBuffer input, void* output, DataType type, ReduceKernel kernel);
  // After announce_whole() on all ranks but the root.
  void reduce(ConstBuffer input, void* output, int root, DataType type, ReduceKernel kernel);
  // After announce_parts().
  void reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, DataType type, ReduceKernel kernel);

 private:
  // all_reduce in steps. Step k is a chunk of the array, cut into one piece per rank: each rank gives the others its numbers (contribute),
  // combines its own piece of what they gave (combine_own), and takes the combined pieces of the others (collect). A slot holds the pieces
  // for all ranks; its owner's own piece is the result.
  class AllReduce;

  [[nodiscard]] const void*& source(int r) noexcept { return combiner_.source(r); }

  RingTransfer& transfer_;
  Combiner& combiner_;
};

}  // namespace neuron::collectives
