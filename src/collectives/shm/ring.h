// The data of large operations: every rank writes into the slots of its own ring, and the others read them. A slot is used again when all
// other ranks are done with it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/shm/arrival.h"
#include "collectives/shm/member.h"

namespace neuron::collectives {

class Ring {
 public:
  Ring(Member& member, Arrival& arrival) : member_(member), arrival_(arrival) {}

  // How the data of an operation is cut: `regions` parts per slot, of `piece` bytes (a multiple of a cache line) each.
  struct Cut {
    std::uint32_t piece = 0;
    std::uint32_t slots = 0;
  };
  // For parts of at most `bytes` each. Short messages are cut finer than slots are, so that reading overlaps writing.
  [[nodiscard]] Cut cut(std::size_t bytes, int regions) const noexcept;

  // Claims the ring for the announced operation.
  void use(Announcement& mine, Cut cut) noexcept;

  // This rank's slot number k of the operation, once nobody reads what it held before.
  std::byte* writable(std::uint64_t k);
  // Shows slot k, or its share of the result, to the others.
  void publish_filled(std::uint64_t k) noexcept;
  void publish_reduced(std::uint64_t k) noexcept;

  // `writer`'s slot k of the operation, once it is filled (or holds its share of the result).
  const std::byte* filled(int writer, std::uint64_t k);
  const std::byte* reduced(int writer, std::uint64_t k);
  // Tells `writer` that its slots below `slots` of the operation are no longer needed here.
  void release(int writer, std::uint64_t slots) noexcept;
  void release_all(int writer) noexcept;

 private:
  Member& member_;
  Arrival& arrival_;
  std::uint64_t position_ = 0;  // of this rank: slots written since the beginning
  std::uint64_t reusable_ = 0;  // slots below this position are known to be consumed by everybody
};

}  // namespace neuron::collectives
