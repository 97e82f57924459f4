// See block_map.h.
#include "torch/device/block_map.h"

#include <sys/mman.h>

#include <new>

namespace neuron::device {

constinit std::atomic<BlockMap::Slot*> BlockMap::leaves[BlockMap::kLeaves] = {};

BlockMap::Slot* BlockMap::make_leaf(const void* data) {
  constexpr auto kBytes = kLeafSlots * sizeof(Slot);
  // Zero pages are null pointers. Leaves are never freed: the address range stays in use as long as the process does.
  auto* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  auto* leaf = static_cast<Slot*>(memory);
  Slot* other = nullptr;
  if (!leaf_of(data).compare_exchange_strong(other, leaf, std::memory_order_acq_rel)) {
    munmap(memory, kBytes);
    return other;
  }
  return leaf;
}

}  // namespace neuron::device
