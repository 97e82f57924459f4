// Combines the numbers of all ranks, block by block through the first-level cache where the result is written past the caches.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "collectives/copy.h"
#include "collectives/reduce/reduce.h"
#include "collectives/types.h"

namespace neuron::collectives {

class Combiner {
 public:
  explicit Combiner(int ranks)
      : sources_(static_cast<std::size_t>(ranks)),
        next_(static_cast<std::size_t>(ranks)),
        targets_(static_cast<std::size_t>(ranks)),
        factors_(static_cast<std::size_t>(ranks)) {}

  // Where rank r's numbers begin; combine() may move it.
  [[nodiscard]] const void*& source(int r) noexcept { return sources_[static_cast<std::size_t>(r)]; }
  // Where rank r gets the result of combine_for_all(); null: it gets none.
  [[nodiscard]] std::byte*& target(int r) noexcept { return targets_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] double& factor(int r) noexcept { return factors_[static_cast<std::size_t>(r)]; }

  // Combines the sources into `output`, which may be one of them: then its lines are in the caches already, and writing past those would
  // only drive them out one by one.
  void combine(ReduceKernel kernel, DataType type, void* output, std::size_t count, bool streaming) {
    if (streaming && std::find(sources_.begin(), sources_.end(), output) == sources_.end()) {
      // While a block is stored, the next one's numbers are fetched.
      const auto store = [&](std::size_t begin, const void* block, std::size_t bytes) {
        for (std::size_t r = 0; r < sources_.size(); ++r) next_[r] = static_cast<const std::byte*>(sources_[r]) + bytes;
        copy_block_and_fetch(static_cast<std::byte*>(output) + begin, block, bytes, next_);
      };
      combine_through_scratch(kernel, type, count, store, fetched_block());
      end_of_blocks();
    } else {
      kernel(sources_.data(), static_cast<int>(sources_.size()), factors_.data(), output, count);
    }
  }

  // Combines the sources into all targets, each of which may be its rank's source.
  void combine_for_all(ReduceKernel kernel, DataType type, std::size_t count, bool streaming) {
    bool in_place = true;
    for (std::size_t r = 0; r < targets_.size(); ++r) in_place = in_place && (targets_[r] == nullptr || targets_[r] == sources_[r]);
    streaming = streaming && !in_place;
    const auto give = [&](std::size_t begin, const void* block, std::size_t bytes) {
      for (std::size_t r = 0; r < targets_.size(); ++r) {
        if (targets_[r] == nullptr) continue;
        std::byte* const target = targets_[r] + begin;
        copy(target, block, bytes, streaming && target != sources_[r]);
      }
    };
    combine_through_scratch(kernel, type, count, give, streaming ? kScratchBytes : kCachedBytes);
  }

  // Calls use(offset, block, bytes) for each combined block.
  template <typename Use>
  void combine_through_scratch(ReduceKernel kernel, DataType type, std::size_t count, Use&& use, std::size_t at_once = kScratchBytes) {
    const std::size_t width = element_size(type);
    const std::size_t block = at_once / width;
    for (std::size_t begin = 0; begin < count; begin += block) {
      const std::size_t now = std::min(block, count - begin);
      kernel(sources_.data(), static_cast<int>(sources_.size()), factors_.data(), scratch_.data(), now);
      use(begin * width, scratch_.data(), now * width);
      for (const void*& from : sources_) from = static_cast<const std::byte*>(from) + now * width;
    }
  }

 private:
  // Where the next block is fetched meanwhile, it and the scratch must fit into the first level.
  [[nodiscard]] std::size_t fetched_block() const noexcept {
    constexpr std::size_t kFetchedBytes = 8 << 10;
    constexpr std::size_t kLine = 64;
    return std::clamp<std::size_t>(kFetchedBytes / sources_.size() / kLine * kLine, 1 << 10, 4 << 10);
  }

  // For stores past the caches long runs are best. What stays in the caches goes through them in short ones, whose lines are all still in
  // the first level: twice as fast.
  static constexpr std::size_t kScratchBytes = 16 << 10;
  static constexpr std::size_t kCachedBytes = 2 << 10;
  std::vector<const void*> sources_;
  std::vector<const void*> next_;  // where the sources' next block begins
  std::vector<std::byte*> targets_;
  std::vector<double> factors_;
  alignas(64) std::array<std::byte, kScratchBytes> scratch_;
};

}  // namespace neuron::collectives
