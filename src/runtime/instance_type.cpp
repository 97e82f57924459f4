// Rows of the hardware table.
#include "runtime/instance_type.h"

#include <algorithm>
#include <array>

namespace neuron::runtime {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// Trn3 servers have no public instance name yet; these two rows are named after the two UltraServer generations (per server, not per rack).
constexpr std::array<InstanceType, 12> kInstanceTypes{{
    {"inf2.xlarge", 1, 2, 1, 32 * kGiB, false},
    {"inf2.8xlarge", 1, 2, 1, 32 * kGiB, false},
    {"inf2.24xlarge", 6, 2, 1, 32 * kGiB, false},
    {"inf2.48xlarge", 12, 2, 1, 32 * kGiB, false},
    {"trn1.2xlarge", 1, 2, 1, 32 * kGiB, false},
    {"trn1.32xlarge", 16, 2, 1, 32 * kGiB, false},
    {"trn1n.32xlarge", 16, 2, 1, 32 * kGiB, false},
    {"trn2.3xlarge", 1, 8, 2, 96 * kGiB, true},
    {"trn2.48xlarge", 16, 8, 2, 96 * kGiB, true},
    {"trn2u.48xlarge", 16, 8, 2, 96 * kGiB, true},
    {"trn3-gen1", 16, 8, 2, 144 * kGiB, true},
    {"trn3-gen2", 4, 8, 2, 144 * kGiB, true},
}};

}  // namespace

std::span<const InstanceType> instance_types() noexcept { return kInstanceTypes; }

const InstanceType* find_instance_type(std::string_view name) noexcept {
  const auto* const found = std::find_if(kInstanceTypes.begin(), kInstanceTypes.end(), [&](const auto& row) { return row.name == name; });
  return found == kInstanceTypes.end() ? nullptr : found;
}

}  // namespace neuron::runtime
