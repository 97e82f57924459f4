// Collectives that move data, through rings: what each rank does after the ranks have announced an operation and agreed on it. What is sent
// was announced by RingTransfer::announce_whole (broadcast, all_gather, gather) or announce_parts (all_to_all, scatter).
#pragma once

#include <cstddef>
#include <span>

#include "collectives/ring_transfer.h"
#include "collectives/types.h"

namespace neuron::collectives {

class RingMovements {
 public:
  explicit RingMovements(RingTransfer& transfer) : transfer_(transfer) {}

  void broadcast(Buffer data, int root, std::size_t width);
  // The own part of outputs: the caller's where nothing goes through this rank's ring.
  void all_gather(ConstBuffer input, std::span<const Buffer> outputs, std::size_t width);
  void gather(ConstBuffer input, std::span<const Buffer> outputs, int root, std::size_t width);
  void all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, std::size_t width);
  void scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, std::size_t width);

 private:
  // Where in `writer`'s inline data this rank's part begins: the parts lie one after the other by rank, the writer's own left out.
  [[nodiscard]] const std::byte* inline_part(int writer, std::size_t width) const noexcept;

  RingTransfer& transfer_;
};

}  // namespace neuron::collectives
