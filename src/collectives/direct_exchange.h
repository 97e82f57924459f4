// Collectives in which every rank reads what it needs from the others' memory, where it is: no byte moves twice, and ranks meet only at the
// ends of stages. Possible where all of a rank's buffers are in memory that its peers can read (shm/peer_memory.h), which each rank offers
// with its announcement; it is done when all offer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/reduce/combiner.h"
#include "collectives/shm/arrival.h"
#include "collectives/shm/member.h"
#include "collectives/shm/peer_memory.h"
#include "collectives/types.h"

namespace neuron::collectives {

class DirectExchange {
 public:
  // Operations on fewer than `smallest` bytes of a rank are not offered.
  DirectExchange(Member& member, Arrival& arrival, const runtime::SharedSegments* memory, std::size_t smallest)
      : member_(member), arrival_(arrival), peers_(member, memory), smallest_(smallest) {}

  // Between prepare() and announce(): offers what the others will read here, if that can be. `inputs` are for all ranks if there is one,
  // else inputs[q] for rank q; `results` (optional) is what they will read of the output. `bytes` decides whether it is worth it.
  void offer(Announcement& mine, std::span<const ConstBuffer> inputs, Buffer results, std::size_t width, std::size_t bytes);
  // For a rank whose memory nobody reads.
  void offer_nothing(Announcement& mine, std::size_t bytes);
  // After await_all(): whether all ranks have offered. Then the operation below is to be called by all.
  [[nodiscard]] bool agreed() const noexcept;

  void all_reduce(ConstBuffer input, void* output, DataType type, ReduceKernel kernel, Combiner& combiner);
  void reduce_scatter(ConstBuffer own, Buffer output, DataType type, ReduceKernel kernel, Combiner& combiner);
  void all_gather(ConstBuffer input, std::span<const Buffer> outputs, std::size_t width);
  void all_to_all(ConstBuffer own, std::span<const Buffer> outputs, std::size_t width);
  void broadcast(Buffer data, int root, std::size_t width);

 private:
  [[nodiscard]] const std::byte* input_of(int rank, int part) const noexcept { return peers_.at(rank, arrival_.inputs(rank)[part]); }
  [[nodiscard]] int peer(int i) const noexcept { return (member_.rank() + i) % member_.size(); }
  // Returns when all ranks have called it as often as this one: what was written before can be read, what was read may be overwritten.
  void end_stage();

  Member& member_;
  Arrival& arrival_;
  PeerMemory peers_;
  std::size_t smallest_;
  std::uint64_t stages_ = 0;
};

// Whether the two ranges share a byte.
[[nodiscard]] bool overlap(ConstBuffer a, ConstBuffer b, std::size_t width) noexcept;

}  // namespace neuron::collectives
