// See ring_transfer.h.
#include "collectives/ring_transfer.h"

#include <cstring>

#include "collectives/copy.h"

namespace neuron::collectives {

std::uint64_t RingTransfer::most_slots() const noexcept {
  std::uint64_t most = 0;
  for (int r = 0; r < size_; ++r) most = std::max<std::uint64_t>(most, arrival_.of(r).slots);
  return most;
}

void RingTransfer::announce_whole(Announcement& mine, const void* input, std::size_t bytes, bool wanted) {
  if (!wanted || bytes == 0) {
    return;
  }
  if (fits_inline(bytes)) {
    std::memcpy(arrival_.inline_data(rank_), input, bytes);
    mine.is_inline = 1;
  } else {
    ring_.use(mine, ring_.cut(bytes, 1));
  }
}

void RingTransfer::write_whole(const void* input, std::size_t bytes, std::uint64_t k) {
  const std::size_t piece = arrival_.of(rank_).piece;
  std::memcpy(ring_.writable(k), moved(input, k * piece), std::min(piece, bytes - k * piece));
  ring_.publish_filled(k);
}

void RingTransfer::read_whole(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming) {
  const Announcement& theirs = arrival_.of(writer);
  if (theirs.is_inline != 0) {
    if (k == 0) copy(output, arrival_.inline_data(writer), bytes, false);
  } else if (k < theirs.slots) {
    const std::size_t begin = k * theirs.piece;
    copy(moved(output, begin), ring_.filled(writer, k), std::min<std::size_t>(theirs.piece, bytes - begin), streaming);
    ring_.release(writer, k + 1);
  }
}

void RingTransfer::announce_parts(Announcement& mine, std::span<const ConstBuffer> inputs, std::size_t width) {
  // The own part counts although it stays: with equal lists, all ranks then decide alike.
  std::size_t total = 0;
  std::size_t largest = 0;
  for (const ConstBuffer& input : inputs) {
    total += input.count * width;
    largest = std::max(largest, input.count * width);
  }
  if (size_ == 1 || total == 0) {
    return;
  }
  if (!fits_inline(total)) {
    ring_.use(mine, ring_.cut(largest, size_ - 1));
    return;
  }
  // One after the other by rank.
  mine.is_inline = 1;
  std::byte* to = arrival_.inline_data(rank_);
  for (int r = 0; r < size_; ++r) {
    const ConstBuffer& input = inputs[static_cast<std::size_t>(r)];
    if (r == rank_ || input.count == 0) continue;
    std::memcpy(to, input.data, input.count * width);
    to += input.count * width;
  }
}

void RingTransfer::write_parts(std::span<const ConstBuffer> inputs, std::size_t width, std::uint64_t k) {
  const std::size_t piece = arrival_.of(rank_).piece;
  const std::size_t begin = k * piece;
  std::byte* const slot = ring_.writable(k);
  for (int i = 1; i < size_; ++i) {
    const ConstBuffer& input = inputs[static_cast<std::size_t>(peer(i))];
    const std::size_t bytes = input.count * width;
    if (begin < bytes) {
      std::memcpy(slot + region(rank_, peer(i)) * piece, moved(input.data, begin), std::min(piece, bytes - begin));
    }
  }
  ring_.publish_filled(k);
}

void RingTransfer::read_part(int writer, void* output, std::size_t bytes, std::uint64_t k, bool streaming) {
  const std::size_t piece = arrival_.of(writer).piece;
  const std::size_t begin = k * piece;
  if (begin >= bytes) {
    return;
  }
  const std::byte* const slot = ring_.filled(writer, k) + region(writer, rank_) * piece;
  copy(moved(output, begin), slot, std::min(piece, bytes - begin), streaming);
  if (begin + piece < bytes) {
    ring_.release(writer, k + 1);
  } else {
    ring_.release_all(writer);
  }
}

}  // namespace neuron::collectives
