// Collectives in which every rank reads what it needs from the others' memory, where it is, and writes what it has computed or can help to
// copy to where it belongs: no byte moves twice, all ranks do the same share of the work, and they meet only at the end. Possible where all
// of a rank's buffers are in memory that its peers can map (shm/peer_memory.h), which each rank offers with its announcement; it is done
// when all offer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
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
  DirectExchange(Member& member, Arrival& arrival, runtime::SharedSegments* memory, std::size_t smallest)
      : member_(member), arrival_(arrival), peers_(member, memory), smallest_(smallest) {}

  // While it lives, others may write this rank's results. When an exception ends it, one of them may be late and still write: the memory is
  // withdrawn from them.
  class Exposure {
   public:
    // `results` must stay where they are.
    Exposure(DirectExchange& exchange, std::span<const Buffer> results) noexcept
        : exchange_(exchange), results_(results), exceptions_(std::uncaught_exceptions()) {}
    ~Exposure() {
      if (std::uncaught_exceptions() == exceptions_) return;
      for (const Buffer& result : results_) {
        if (result.count > 0) exchange_.peers_.withdraw(result.data);
      }
    }
    Exposure(const Exposure&) = delete;
    Exposure& operator=(const Exposure&) = delete;

   private:
    DirectExchange& exchange_;
    std::span<const Buffer> results_;
    int exceptions_;
  };

  // Between prepare() and announce(): offers what the others will read here, if that can be. `inputs` are for all ranks if there is one,
  // else inputs[q] for rank q. `bytes` decides whether it is worth it.
  void offer(Announcement& mine, std::span<const ConstBuffer> inputs, std::size_t width, std::size_t bytes) {
    offer_places(mine, inputs, {}, width, bytes);
  }
  // The same with results that the others will write: one for all of them, or results[q] for rank q.
  [[nodiscard]] Exposure offer(Announcement& mine, std::span<const ConstBuffer> inputs, std::span<const Buffer> results, std::size_t width,
                               std::size_t bytes) {
    return {*this, offer_places(mine, inputs, results, width, bytes) ? results : std::span<const Buffer>()};
  }
  // After await_all(): whether all ranks have offered. Then the operation below is to be called by all.
  [[nodiscard]] bool agreed() const noexcept;

  void all_reduce(ConstBuffer input, Buffer output, DataType type, ReduceKernel kernel, Combiner& combiner);
  void reduce(ConstBuffer input, void* output, int root, DataType type, ReduceKernel kernel, Combiner& combiner);
  void reduce_scatter(ConstBuffer own, Buffer output, DataType type, ReduceKernel kernel, Combiner& combiner);
  void all_gather(ConstBuffer input, std::span<const Buffer> outputs, std::size_t width);
  void all_to_all(ConstBuffer own, std::span<const Buffer> outputs, std::size_t width);
  void broadcast(Buffer data, int root, std::size_t width);
  void gather(ConstBuffer input, std::span<const Buffer> outputs, int root, std::size_t width);
  void scatter(std::span<const ConstBuffer> inputs, Buffer output, int root, std::size_t width);

 private:
  [[nodiscard]] const std::byte* input_of(int rank, int part) const noexcept { return peers_.at(rank, arrival_.inputs(rank)[part]); }
  [[nodiscard]] std::byte* output_of(int rank, int part) const noexcept { return peers_.at(rank, arrival_.outputs(rank)[part]); }
  [[nodiscard]] int peer(int i) const noexcept { return (member_.rank() + i) % member_.size(); }
  // Whether it was offered.
  bool offer_places(Announcement& mine, std::span<const ConstBuffer> inputs, std::span<const Buffer> results, std::size_t width,
                    std::size_t bytes);
  // Where the data between the root and another rank, `bytes` in all, is cut: what lies before is copied by the root, the rest by the
  // other. So every rank of the group copies the same.
  [[nodiscard]] std::size_t share_of_root(std::size_t bytes) const noexcept {
    return bytes / static_cast<std::size_t>(member_.size()) / kCacheLine * kCacheLine;
  }
  // The share of the numbers that this rank combines.
  struct Share {
    std::size_t first;
    std::size_t count;
  };
  [[nodiscard]] Share share_of(std::size_t count) const noexcept;
  // Lets the combiner read all ranks' inputs from there on.
  void read_from(ConstBuffer own, std::size_t begin, Combiner& combiner) noexcept;
  // Returns when all ranks have called it as often as this one: what was written before can be read, what was read may be overwritten.
  void end_stage();
  // The same after others may have written `results`.
  void end_stage(std::span<const Buffer> results, std::size_t width);

  Member& member_;
  Arrival& arrival_;
  PeerMemory peers_;
  std::size_t smallest_;
  std::uint64_t stages_ = 0;
};

// Whether the two ranges share a byte.
[[nodiscard]] bool overlap(ConstBuffer a, ConstBuffer b, std::size_t width) noexcept;

// Whether `rank`, writing its outputs, would change what others may not have read of its inputs yet. inputs[q] is for rank q: its own part
// nobody else reads.
[[nodiscard]] bool overwrites(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, int rank, std::size_t width) noexcept;
// The same where the others read one input as a whole; it may be this rank's output.
[[nodiscard]] bool overwrites(ConstBuffer input, std::span<const Buffer> outputs, int rank, std::size_t width) noexcept;

}  // namespace neuron::collectives
