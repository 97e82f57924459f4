// Slots: who may write and who may read them.
#include "collectives/shm/ring.h"

#include <algorithm>

namespace neuron::collectives {

Ring::Cut Ring::cut(std::size_t bytes, int regions) const noexcept {
  constexpr std::size_t kSmallestPiece = 4096;
  constexpr std::size_t kStages = 4;
  const auto lines = [](std::size_t size) { return size / kCacheLine * kCacheLine; };
  const std::size_t largest = lines(member_.layout().slot_bytes() / static_cast<std::size_t>(std::max(regions, 1)));
  const std::size_t piece = std::min(largest, std::max(kSmallestPiece, lines(bytes / kStages + kCacheLine - 1)));
  return {static_cast<std::uint32_t>(piece), static_cast<std::uint32_t>((bytes + piece - 1) / piece)};
}

void Ring::use(Announcement& mine, Cut cut) noexcept {
  mine.first_slot = position_;
  mine.piece = cut.piece;
  mine.slots = cut.slots;
  position_ += cut.slots;
}

std::byte* Ring::writable(std::uint64_t k) {
  const std::uint64_t position = arrival_.of(member_.rank()).first_slot + k;
  if (position >= reusable_ + Layout::kSlots) {
    std::uint64_t least = UINT64_MAX;
    for (int reader = 0; reader < member_.size(); ++reader) {
      if (reader == member_.rank()) continue;
      const auto& consumed = member_.consumed(reader, member_.rank());
      std::uint64_t seen = 0;
      arrival_.await(reader, [&] {
        seen = consumed.load(std::memory_order_acquire);
        return position < seen + Layout::kSlots;
      });
      least = std::min(least, seen);
    }
    reusable_ = least;
  }
  return member_.slot(member_.rank(), position);
}

void Ring::publish_filled(std::uint64_t k) noexcept {
  member_.state(member_.rank()).filled.store(arrival_.of(member_.rank()).first_slot + k + 1, std::memory_order_release);
  member_.notify_all(&RankState::collectives);
}

void Ring::publish_reduced(std::uint64_t k) noexcept {
  member_.state(member_.rank()).reduced.store(arrival_.of(member_.rank()).first_slot + k + 1, std::memory_order_release);
  member_.notify_all(&RankState::collectives);
}

const std::byte* Ring::filled(int writer, std::uint64_t k) {
  const std::uint64_t position = arrival_.of(writer).first_slot + k;
  const auto& counter = member_.state(writer).filled;
  arrival_.await(writer, [&] { return counter.load(std::memory_order_acquire) > position; });
  return member_.slot(writer, position);
}

const std::byte* Ring::reduced(int writer, std::uint64_t k) {
  const std::uint64_t position = arrival_.of(writer).first_slot + k;
  const auto& counter = member_.state(writer).reduced;
  arrival_.await(writer, [&] { return counter.load(std::memory_order_acquire) > position; });
  return member_.slot(writer, position);
}

void Ring::release(int writer, std::uint64_t slots) noexcept {
  member_.consumed(member_.rank(), writer).store(arrival_.of(writer).first_slot + slots, std::memory_order_release);
  member_.notify(&RankState::collectives, writer);
}

void Ring::release_all(int writer) noexcept {
  if (arrival_.of(writer).slots > 0) {
    release(writer, arrival_.of(writer).slots);
  }
}

}  // namespace neuron::collectives
