// What one rank asks for in one collective call: what ranks must agree on, and how it reads in messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/types.h"

namespace neuron::collectives {

enum class Collective : std::uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kBarrier
};

[[nodiscard]] std::string_view name(Collective collective) noexcept;

struct Operation {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUInt8;
  Reduction reduction{};
  int root = -1;  // -1: no root
  std::uint64_t count =
      0;  // elements of this rank's input (broadcast: data; scatter: output; reduce_scatter, all_to_all: all inputs together)
  // Elements per rank where all ranks must pass the same list (all_gather, reduce_scatter); empty otherwise.
  std::span<const std::uint64_t> counts{};
};

// 64 bits that differ (but for a chance of 2^-64) when calls do not fit together. Not included: shapes, which may differ while counts
// agree, the factor of a pre-multiplied sum, and counts that legitimately differ between ranks.
[[nodiscard]] std::uint64_t signature(const Operation& operation, std::uint64_t sequence) noexcept;

}  // namespace neuron::collectives
