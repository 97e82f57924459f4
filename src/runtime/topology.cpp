// Derives the visible cores from the hardware table and the environment.
#include "runtime/topology.h"

#include <algorithm>
#include <cstddef>

#include "runtime/error.h"

namespace neuron::runtime {
namespace {

constexpr const char* kInstanceVariable = "SOFTNEURON_INSTANCE_TYPE";
constexpr const char* kHbmVariable = "SOFTNEURON_HBM_BYTES";
constexpr const char* kVisibleCoresVariable = "NEURON_RT_VISIBLE_CORES";
constexpr const char* kNumCoresVariable = "NEURON_RT_NUM_CORES";
constexpr const char* kLogicalCoreVariable = "NEURON_LOGICAL_NC_CONFIG";
constexpr const char* kOlderLogicalCoreVariable = "NEURON_RT_VIRTUAL_CORE_SIZE";

const InstanceType& read_instance_type(const Environment& environment) {
  const std::string value = environment.raw(kInstanceVariable).value_or(std::string(kDefaultInstanceType));
  const InstanceType* row = find_instance_type(value);
  if (row == nullptr) {
    std::string accepted = "one of";
    for (const auto& type : instance_types()) {
      accepted += (&type == instance_types().data() ? " " : ", ") + std::string(type.name);
    }
    throw_bad_value(kInstanceVariable, value, accepted);
  }
  return *row;
}

int read_logical_nc_config(const Environment& environment, const InstanceType& instance) {
  for (const char* variable : {kLogicalCoreVariable, kOlderLogicalCoreVariable}) {
    const auto value = environment.integer(variable, 1, 2);
    if (!value) {
      continue;
    }
    if (*value != 1 && !instance.has_logical_cores) {
      throw_bad_value(variable, std::to_string(*value), "1 (the cores of " + std::string(instance.name) + " cannot be grouped)");
    }
    return static_cast<int>(*value);
  }
  return instance.default_logical_nc_config;
}

// PyTorch numbers devices with 8 bits, signed: a process cannot address more cores than this, and sees the first of a larger instance.
constexpr int kMostVisibleCores = 127;

struct CoreRange {
  int first;
  int count;
};

CoreRange read_visible_cores(const Environment& environment, int available) {
  const std::string last = std::to_string(available - 1);
  if (const auto indices = environment.index_list(kVisibleCoresVariable)) {
    const std::string value = environment.raw(kVisibleCoresVariable).value_or("");
    for (std::size_t i = 1; i < indices->size(); ++i) {
      if ((*indices)[i] != (*indices)[i - 1] + 1) {
        throw_bad_value(kVisibleCoresVariable, value,
                        "contiguous ascending logical cores, a list such as 0,1,2 or a range such as 0-" + last);
      }
    }
    if (indices->back() >= available) {
      throw_bad_value(kVisibleCoresVariable, value,
                      "logical cores 0 to " + last + " (this instance has " + std::to_string(available) + ")");
    }
    return {indices->front(), static_cast<int>(indices->size())};
  }
  const auto count = static_cast<int>(environment.integer(kNumCoresVariable, 0, available).value_or(0));
  return {0, count == 0 ? available : count};
}

}  // namespace

Topology Topology::from_environment(const Environment& environment) {
  const InstanceType& instance = read_instance_type(environment);
  Topology topology;
  topology.instance_type_ = instance.name;
  topology.chips_ = instance.chips;
  topology.logical_nc_config_ = read_logical_nc_config(environment, instance);

  const int per_chip = instance.cores_per_chip / topology.logical_nc_config_;
  topology.logical_cores_ = instance.chips * per_chip;
  const std::uint64_t memory =
      environment.byte_size(kHbmVariable).value_or(instance.hbm_bytes_per_chip / static_cast<std::uint64_t>(per_chip));

  CoreRange range = read_visible_cores(environment, topology.logical_cores_);
  range.count = std::min(range.count, kMostVisibleCores);
  topology.cores_.reserve(static_cast<std::size_t>(range.count));
  for (int index = 0; index < range.count; ++index) {
    const int core_id = range.first + index;
    topology.cores_.push_back({index, core_id, core_id / per_chip, memory, "neuron:" + std::to_string(index)});
  }
  return topology;
}

}  // namespace neuron::runtime
