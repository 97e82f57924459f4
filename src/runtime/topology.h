// What this process sees: the logical cores of the simulated instance after the visibility variables have been applied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/environment.h"
#include "runtime/instance_type.h"

namespace neuron::runtime {

struct CoreProperties {
  int index;                   // index the application uses: 0 .. count-1
  int core_id;                 // id of the logical core on the instance, as in NEURON_RT_VISIBLE_CORES
  int chip;                    // chip that holds the core
  std::uint64_t memory_bytes;  // HBM of this logical core
  std::string name;            // "neuron:<index>"
};

class Topology {
 public:
  // Variables read (all optional; an empty value is an error, see environment.h):
  //   SOFTNEURON_INSTANCE_TYPE    row of the hardware table; default trn2.3xlarge
  //   NEURON_LOGICAL_NC_CONFIG    physical cores per logical core, 1 or 2; wins over NEURON_RT_VIRTUAL_CORE_SIZE, its older name
  //   NEURON_RT_VISIBLE_CORES     contiguous ascending list or range of logical cores; wins over NEURON_RT_NUM_CORES
  //   NEURON_RT_NUM_CORES         number of cores to use, 0 = all
  //   SOFTNEURON_HBM_BYTES        bytes of HBM per logical core, suffix K, M or G; for small simulated devices
  // Throws Error(kInvalidEnvironment) naming variable, value and accepted form.
  static Topology from_environment(const Environment& environment);

  [[nodiscard]] const std::string& instance_type() const noexcept { return instance_type_; }
  [[nodiscard]] int logical_nc_config() const noexcept { return logical_nc_config_; }
  // Visible cores only.
  [[nodiscard]] const std::vector<CoreProperties>& cores() const noexcept { return cores_; }
  [[nodiscard]] int chips() const noexcept { return chips_; }
  // Logical cores of the whole instance, visible or not.
  [[nodiscard]] int logical_cores() const noexcept { return logical_cores_; }
  [[nodiscard]] int cores_per_chip() const noexcept { return logical_cores_ / chips_; }

 private:
  Topology() = default;

  std::string instance_type_;
  int logical_nc_config_ = 1;
  int chips_ = 1;
  int logical_cores_ = 1;
  std::vector<CoreProperties> cores_;
};

}  // namespace neuron::runtime
