// Finds the runtime block that starts at an address: the context of our DataPtrs is the address itself.
//
// torch's raw allocation interface (oneDNN's scratch memory comes through it) and copy-on-write storages only carry the data pointer, so
// the block must be found from it. A hash table behind a lock would double the price of a small allocation; this is a two-level table
// indexed by address bits, two dependent loads, no lock: blocks start on 256-byte boundaries (runtime/memory/size_class.h), so each has a
// slot of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace neuron::runtime {
struct Block;
}

namespace neuron::device {

class BlockMap {
 public:
  // `data` must be aligned to the granule and not in the map. Raises std::bad_alloc if the table cannot grow.
  static void insert(const void* data, runtime::Block* block) {
    auto* leaf = leaf_of(data).load(std::memory_order_acquire);
    if (leaf == nullptr) [[unlikely]] {
      leaf = make_leaf(data);
    }
    leaf[slot_of(data)].store(block, std::memory_order_relaxed);
  }

  // The block that starts in the granule around `data`, or null. Any address may be asked for.
  static runtime::Block* find(const void* data) noexcept {
    const auto* leaf = in_range(data) ? leaf_of(data).load(std::memory_order_acquire) : nullptr;
    return leaf == nullptr ? nullptr : leaf[slot_of(data)].load(std::memory_order_relaxed);
  }

  static void erase(const void* data) noexcept {
    leaf_of(data).load(std::memory_order_relaxed)[slot_of(data)].store(nullptr, std::memory_order_relaxed);
  }

 private:
  using Slot = std::atomic<runtime::Block*>;

  static constexpr int kAddressBits = 48;
  static constexpr int kGranuleBits = 8;
  static constexpr int kLeafBits = 22;  // one leaf spans 1 GiB of addresses: 32 MiB of address space, of which touched pages only are real
  static constexpr std::size_t kLeafSlots = std::size_t{1} << kLeafBits;
  static constexpr std::size_t kLeaves = std::size_t{1} << (kAddressBits - kGranuleBits - kLeafBits);

  static std::uintptr_t granule(const void* data) noexcept { return reinterpret_cast<std::uintptr_t>(data) >> kGranuleBits; }
  static bool in_range(const void* data) noexcept { return granule(data) >> (kAddressBits - kGranuleBits) == 0; }
  static std::size_t slot_of(const void* data) noexcept { return granule(data) & (kLeafSlots - 1); }
  static std::atomic<Slot*>& leaf_of(const void* data) noexcept { return leaves[granule(data) >> kLeafBits]; }
  static Slot* make_leaf(const void* data);

  static std::atomic<Slot*> leaves[kLeaves];
};

}  // namespace neuron::device
