// Storage for Block descriptors: allocated in slabs, reused, returned to the system only with the allocator.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/memory/block.h"

namespace neuron::runtime {

// Guarded by the allocator's lock.
class BlockDescriptors {
 public:
  // Makes sure that the next `count` calls of take() cannot fail. May throw std::bad_alloc.
  void reserve(std::size_t count) {
    while (available_ < count) {
      slabs_.push_back(std::make_unique<Slab>());
      for (Block& block : *slabs_.back()) {
        put(&block);
      }
    }
  }
  // A default-initialised descriptor; reserve() must have been called.
  Block* take() noexcept {
    Block* const block = unused_;
    unused_ = block->list_next;
    --available_;
    *block = Block{};
    return block;
  }
  void put(Block* block) noexcept {
    block->list_next = unused_;
    unused_ = block;
    ++available_;
  }

 private:
  static constexpr std::size_t kSlabBlocks = 64;
  using Slab = std::array<Block, kSlabBlocks>;

  std::vector<std::unique_ptr<Slab>> slabs_;
  Block* unused_ = nullptr;
  std::size_t available_ = 0;
};

}  // namespace neuron::runtime
