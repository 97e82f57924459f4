// Segregated free lists with a bitmap of the filled ones.
#include "runtime/memory/block_bins.h"

#include <bit>

namespace neuron::runtime {
namespace {

// Smallest block of a list that is large enough, or nullptr. All blocks of a list differ by less than 1/16, so the search for a better fit
// stops after a while: a fragmented pool must not make allocation slow.
Block* smallest_fit(Block* head, std::size_t slot) noexcept {
  int candidates = 64;
  Block* best = nullptr;
  for (Block* block = head; block != nullptr && candidates > 0; block = block->list_next) {
    if (block->slot == slot) {
      return block;
    }
    if (block->slot > slot) {
      --candidates;
      if (best == nullptr || block->slot < best->slot) {
        best = block;
      }
    }
  }
  return best;
}

}  // namespace

void BlockBins::insert(Block* block) noexcept {
  const std::size_t index = size_class::floor_index(block->slot);
  Block*& head = heads_[index];
  block->state = BlockState::kFree;
  block->list_previous = nullptr;
  block->list_next = head;
  if (head != nullptr) {
    head->list_previous = block;
  }
  head = block;
  filled_[index / kWordBits] |= std::uint64_t{1} << (index % kWordBits);
}

void BlockBins::remove(Block* block) noexcept {
  if (block->list_next != nullptr) {
    block->list_next->list_previous = block->list_previous;
  }
  if (block->list_previous != nullptr) {
    block->list_previous->list_next = block->list_next;
  } else {
    const std::size_t index = size_class::floor_index(block->slot);
    heads_[index] = block->list_next;
    if (block->list_next == nullptr) {
      filled_[index / kWordBits] &= ~(std::uint64_t{1} << (index % kWordBits));
    }
  }
  block->list_next = nullptr;
  block->list_previous = nullptr;
}

std::size_t BlockBins::next_filled(std::size_t index) const noexcept {
  for (std::size_t word = index / kWordBits; word < kWords; ++word) {
    const std::uint64_t ignored = word == index / kWordBits ? (std::uint64_t{1} << (index % kWordBits)) - 1 : 0;
    const std::uint64_t bits = filled_[word] & ~ignored;
    if (bits != 0) {
      return word * kWordBits + static_cast<std::size_t>(std::countr_zero(bits));
    }
  }
  return size_class::kCount;
}

Block* BlockBins::take(std::size_t slot) noexcept {
  // The bin of the request's own class may hold blocks that are a little too small; every later bin fits as a whole.
  for (std::size_t index = next_filled(size_class::floor_index(slot)); index < size_class::kCount; index = next_filled(index + 1)) {
    if (Block* const block = smallest_fit(heads_[index], slot)) {
      remove(block);
      return block;
    }
  }
  return nullptr;
}

}  // namespace neuron::runtime
