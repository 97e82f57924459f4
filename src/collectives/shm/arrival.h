// The beginning of each operation: every rank announces what it is about to do, waits for all others, and compares. Small data travels
// along.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "collectives/communicator.h"
#include "collectives/operation.h"
#include "collectives/shm/member.h"

namespace neuron::collectives {

class Arrival {
 public:
  explicit Arrival(Member& member) : member_(member) {}

  // Fills this rank's announcement but for the data's place (first_slot, slots, piece, is_inline), which the caller sets before announce().
  // Throws when the group is broken.
  Announcement& prepare(const Operation& operation, const Call& call);
  // Shows it to the others.
  void announce() noexcept;
  // Returns when all ranks have announced operations that fit together.
  void await_all();

  // Of the current operation.
  [[nodiscard]] const Announcement& of(int rank) const noexcept { return announcement(rank, operation_); }
  // Elements that the rank sends to, and expects from, each rank, where counts may differ between ranks. Written between prepare() and
  // announce().
  [[nodiscard]] std::uint64_t* sends(int rank) const noexcept { return counts(rank); }
  [[nodiscard]] std::uint64_t* receives(int rank) const noexcept { return counts(rank) + member_.size(); }
  // Where in the rank's file its input for each rank (or for all: [0]), and its output from each rank (or from all: [0]), begin, if it
  // is_direct.
  [[nodiscard]] std::uint64_t* inputs(int rank) const noexcept { return counts(rank) + 2 * member_.size(); }
  [[nodiscard]] std::uint64_t* outputs(int rank) const noexcept { return counts(rank) + 3 * member_.size(); }
  [[nodiscard]] std::byte* inline_data(int rank) const noexcept {
    return base(rank, operation_) + sizeof(Announcement) + sizeof(AnnouncedShape) + member_.layout().counts_bytes();
  }

  // Waits for something that `peer` does after its arrival; throws Error(kTimeout) or Error(kPeerDied) when it does not come.
  template <typename Ready>
  void await(int peer, Ready&& ready) {
    const auto outcome = member_.wait(&RankState::collectives, peer, timeout_, ready);
    if (outcome != Member::Outcome::kReady) [[unlikely]] {
      give_up(peer, outcome);
    }
  }

  // Breaks the group with Error(kMismatch): `what` and the calls of all ranks.
  [[noreturn]] void mismatch(const std::string& what);

 private:
  [[nodiscard]] std::byte* base(int rank, std::uint64_t operation) const noexcept {
    return member_.segment().data() + member_.layout().announcement(rank, operation);
  }
  [[nodiscard]] Announcement& announcement(int rank, std::uint64_t operation) const noexcept {
    return *reinterpret_cast<Announcement*>(base(rank, operation));
  }
  [[nodiscard]] AnnouncedShape& shape(int rank, std::uint64_t operation) const noexcept {
    return *reinterpret_cast<AnnouncedShape*>(base(rank, operation) + sizeof(Announcement));
  }
  [[nodiscard]] std::uint64_t* counts(int rank) const noexcept {
    return reinterpret_cast<std::uint64_t*>(base(rank, operation_) + sizeof(Announcement) + sizeof(AnnouncedShape));
  }
  [[nodiscard]] std::string describe(int rank, std::uint64_t operation) const;
  [[nodiscard]] std::string last_call(int rank) const;
  [[noreturn]] void give_up(int peer, Member::Outcome outcome);

  Member& member_;
  std::uint64_t operation_ = 0;
  std::chrono::milliseconds timeout_{0};
};

}  // namespace neuron::collectives
