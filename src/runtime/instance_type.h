// The hardware table: which instance types exist and what they contain. One row per type; everything else is derived from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace neuron::runtime {

struct InstanceType {
  std::string_view name;
  int chips;
  int cores_per_chip;             // physical NeuronCores
  int default_logical_nc_config;  // physical cores per logical core
  std::uint64_t hbm_bytes_per_chip;
  bool has_logical_cores;  // whether cores can be grouped (Trainium2 and later)
};

inline constexpr std::string_view kDefaultInstanceType = "trn2.3xlarge";

std::span<const InstanceType> instance_types() noexcept;

// The row with that name, or nullptr.
const InstanceType* find_instance_type(std::string_view name) noexcept;

}  // namespace neuron::runtime
