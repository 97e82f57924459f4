// How one rank's data gets to the others through the segment: inline with the announcement where it is small, else in pieces through the
// rank's ring (shm/ring.h), so that a piece is in the second-level cache while one rank writes and the others read it.
//
// announce_...() is called between Arrival::prepare() and announce(), the rest after await_all(). Every rank must release what every other
// one announced, whether or not it reads it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/shm/arrival.h"
#include "collectives/shm/member.h"
#include "collectives/shm/ring.h"
#include "collectives/types.h"

namespace neuron::collectives {

class RingTransfer {
 public:
  RingTransfer(Member& member, Arrival& arrival)
      : member_(member), arrival_(arrival), ring_(member, arrival), rank_(member.rank()), size_(member.size()) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  // The other ranks, beginning after this one, so that not all ranks read from the same one at a time.
  [[nodiscard]] int peer(int i) const noexcept { return (rank_ + i) % size_; }
  [[nodiscard]] Ring& ring() noexcept { return ring_; }
  [[nodiscard]] const Arrival& arrival() const noexcept { return arrival_; }
  [[nodiscard]] bool fits_inline(std::size_t bytes) const noexcept { return bytes <= member_.layout().inline_bytes(); }
  // The largest number of slots that a rank uses in this operation.
  [[nodiscard]] std::uint64_t most_slots() const noexcept;
  // This rank's slot k of the operation, to which nobody else writes.
  [[nodiscard]] std::byte* own_slot(std::uint64_t k) const noexcept { return member_.slot(rank_, arrival_.of(rank_).first_slot + k); }
  // Which part of `writer`'s slots is for `reader`.
  [[nodiscard]] std::size_t region(int writer, int reader) const noexcept {
    return static_cast<std::size_t>((reader - writer + size_ - 1) % size_);
  }
  // Gives back all that this rank could read in the operation.
  void release_everything() noexcept {
    for (int i = 1; i < size_; ++i) ring_.release_all(peer(i));
  }

  // Data that is for all (or one) of the others as a whole. Nothing is announced where it is not `wanted`.
  void announce_whole(Announcement& mine, const void* input, std::size_t bytes, bool wanted);
  void write_whole(const void* input, std::size_t bytes, std::uint64_t k);
  // Part k of the `bytes` that `writer` sends; releases its slot.
  void read_whole(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming);

  // Data of which each rank gets a part of its own: inputs[q] goes to rank q.
  void announce_parts(Announcement& mine, std::span<const ConstBuffer> inputs, std::size_t width);
  void write_parts(std::span<const ConstBuffer> inputs, std::size_t width, std::uint64_t k);
  // Piece k of the `bytes` that `writer` sends to this rank; releases its slot.
  void read_part(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming);

  // Runs write(k) for this rank's slots and, one step behind, read(k), `steps` times: what is read was written one step earlier, so it is
  // there.
  template <typename Write, typename Read>
  static void pipeline(std::uint64_t slots, std::uint64_t steps, Write&& write, Read&& read) {
    for (std::uint64_t step = 0; step <= steps; ++step) {
      if (step < slots) write(step);
      if (step > 0) read(step - 1);
    }
  }

 private:
  Member& member_;
  Arrival& arrival_;
  Ring ring_;
  int rank_;
  int size_;
};

inline std::byte* moved(void* data, std::size_t bytes) noexcept { return static_cast<std::byte*>(data) + bytes; }
inline const std::byte* moved(const void* data, std::size_t bytes) noexcept { return static_cast<const std::byte*>(data) + bytes; }

}  // namespace neuron::collectives
