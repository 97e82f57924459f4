// Names and signatures of operations.
#include "collectives/operation.h"

#include <array>

namespace neuron::collectives {
namespace {

constexpr std::array<std::string_view, 9> kNames{"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                                                 "all_to_all", "gather", "scatter",   "barrier"};
static_assert(kNames.size() == static_cast<std::size_t>(Collective::kBarrier) + 1);

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32);
}

bool reduces(Collective collective) noexcept {
  return collective == Collective::kAllReduce || collective == Collective::kReduce || collective == Collective::kReduceScatter;
}

// Whether all ranks pass the same number of elements.
bool same_count(Collective collective) noexcept {
  return collective == Collective::kAllReduce || collective == Collective::kReduce || collective == Collective::kBroadcast;
}

}  // namespace

std::string_view name(Collective collective) noexcept { return kNames[static_cast<std::size_t>(collective)]; }

std::uint64_t signature(const Operation& operation, std::uint64_t sequence) noexcept {
  const auto op = reduces(operation.collective) ? static_cast<std::uint64_t>(operation.reduction.op) + 1 : 0;
  const std::uint64_t kind = static_cast<std::uint64_t>(operation.collective) | (static_cast<std::uint64_t>(operation.type) << 8) |
                             (op << 16) | (static_cast<std::uint64_t>(operation.root + 1) << 32);
  std::uint64_t hash = mixed(mixed(0, sequence), kind);
  hash = mixed(hash, same_count(operation.collective) ? operation.count + 1 : 0);
  for (const std::uint64_t count : operation.counts) {
    hash = mixed(hash, count + 1);
  }
  return hash;
}

}  // namespace neuron::collectives
