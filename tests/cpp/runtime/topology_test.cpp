// Topology: the hardware table, and how the environment selects cores from it.
#include "runtime/topology.h"

#include <cstdint>
#include <string>
#include <tuple>

#include "runtime/support.h"

namespace neuron::runtime {
namespace {

using testing::environment;
using testing::error_of;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

Topology topology_of(std::map<std::string, std::string> values) { return Topology::from_environment(environment(std::move(values))); }

TEST(Topology, DefaultIsOneTrainium2ChipWithFourLogicalCores) {
  const Topology topology = topology_of({});
  EXPECT_EQ(topology.instance_type(), "trn2.3xlarge");
  EXPECT_EQ(topology.logical_nc_config(), 2);
  EXPECT_EQ(topology.chips(), 1);
  ASSERT_EQ(topology.cores().size(), 4U);
  for (int index = 0; index < 4; ++index) {
    const CoreProperties& core = topology.cores()[static_cast<std::size_t>(index)];
    EXPECT_EQ(core.index, index);
    EXPECT_EQ(core.core_id, index);
    EXPECT_EQ(core.chip, 0);
    EXPECT_EQ(core.memory_bytes, 24 * kGiB);
    EXPECT_EQ(core.name, "neuron:" + std::to_string(index));
  }
}

// Device counts and HBM per logical core as documented for each instance type.
class InstanceTypes : public ::testing::TestWithParam<std::tuple<const char*, std::size_t, std::uint64_t>> {};

TEST_P(InstanceTypes, CoresAndMemory) {
  const auto& [name, cores, gib] = GetParam();
  const Topology topology = topology_of({{"SOFTNEURON_INSTANCE_TYPE", name}});
  EXPECT_EQ(topology.cores().size(), cores);
  EXPECT_EQ(topology.cores().front().memory_bytes, gib * kGiB);
  EXPECT_EQ(topology.cores().back().chip, topology.chips() - 1);
}

INSTANTIATE_TEST_SUITE_P(Documented, InstanceTypes,
                         ::testing::Values(std::tuple{"inf2.xlarge", 2, 16}, std::tuple{"inf2.8xlarge", 2, 16},
                                           std::tuple{"inf2.24xlarge", 12, 16}, std::tuple{"inf2.48xlarge", 24, 16},
                                           std::tuple{"trn1.2xlarge", 2, 16}, std::tuple{"trn1.32xlarge", 32, 16},
                                           std::tuple{"trn1n.32xlarge", 32, 16}, std::tuple{"trn2.3xlarge", 4, 24},
                                           std::tuple{"trn2.48xlarge", 64, 24}, std::tuple{"trn2u.48xlarge", 64, 24},
                                           std::tuple{"trn3-gen1", 64, 36}, std::tuple{"trn3-gen2", 16, 36}));

TEST(Topology, LogicalCoreConfigurationOne) {
  for (const char* variable : {"NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE"}) {
    const Topology topology = topology_of({{variable, "1"}});
    EXPECT_EQ(topology.cores().size(), 8U) << variable;
    EXPECT_EQ(topology.cores().front().memory_bytes, 12 * kGiB) << variable;
  }
}

TEST(Topology, NewerNameOfLogicalCoreConfigurationWins) {
  EXPECT_EQ(topology_of({{"NEURON_LOGICAL_NC_CONFIG", "2"}, {"NEURON_RT_VIRTUAL_CORE_SIZE", "1"}}).cores().size(), 4U);
}

TEST(Topology, ProcessSeesNoMoreCoresThanPyTorchCanNumber) {
  std::map<std::string, std::string> largest = {{"SOFTNEURON_INSTANCE_TYPE", "trn2.48xlarge"}, {"NEURON_LOGICAL_NC_CONFIG", "1"}};
  EXPECT_EQ(topology_of(largest).cores().size(), 127U);
  largest["NEURON_RT_VISIBLE_CORES"] = "127";
  ASSERT_EQ(topology_of(largest).cores().size(), 1U);
  EXPECT_EQ(topology_of(largest).cores()[0].core_id, 127);
}

TEST(Topology, VisibleCoresRestartAtIndexZero) {
  for (const char* text : {"2-3", "2,3"}) {
    const Topology topology = topology_of({{"NEURON_RT_VISIBLE_CORES", text}});
    ASSERT_EQ(topology.cores().size(), 2U) << text;
    EXPECT_EQ(topology.cores()[0].core_id, 2);
    EXPECT_EQ(topology.cores()[0].name, "neuron:0");
    EXPECT_EQ(topology.cores()[1].core_id, 3);
    EXPECT_EQ(topology.logical_cores(), 4);
  }
}

TEST(Topology, VisibleCoresOnAnotherChip) {
  const Topology topology = topology_of({{"SOFTNEURON_INSTANCE_TYPE", "trn2.48xlarge"}, {"NEURON_RT_VISIBLE_CORES", "7-8"}});
  EXPECT_EQ(topology.cores()[0].chip, 1);
  EXPECT_EQ(topology.cores()[1].chip, 2);
}

TEST(Topology, VisibleCoresWinOverNumCores) {
  EXPECT_EQ(topology_of({{"NEURON_RT_VISIBLE_CORES", "1"}, {"NEURON_RT_NUM_CORES", "3"}}).cores().size(), 1U);
}

TEST(Topology, NumCores) {
  EXPECT_EQ(topology_of({{"NEURON_RT_NUM_CORES", "3"}}).cores().size(), 3U);
  EXPECT_EQ(topology_of({{"NEURON_RT_NUM_CORES", "0"}}).cores().size(), 4U);
}

TEST(Topology, SmallSimulatedDevice) {
  EXPECT_EQ(topology_of({{"SOFTNEURON_HBM_BYTES", "64M"}}).cores()[3].memory_bytes, std::uint64_t{64} << 20U);
}

class BadTopology : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(BadTopology, ErrorNamesVariableValueAndAcceptedForm) {
  const auto& [variable, value] = GetParam();
  const auto error = error_of([&, name = variable, text = value] { topology_of({{name, text}}); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidEnvironment);
  EXPECT_NE(error.text.find(variable), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("Accepted: "), std::string::npos) << error.text;
  EXPECT_NE(error.text.find(std::string(value).empty() ? "set but empty" : value), std::string::npos) << error.text;
}

INSTANTIATE_TEST_SUITE_P(Values, BadTopology,
                         ::testing::Values(std::tuple{"NEURON_RT_VISIBLE_CORES", ""}, std::tuple{"NEURON_RT_VISIBLE_CORES", "0,2"},
                                           std::tuple{"NEURON_RT_VISIBLE_CORES", "1,0"}, std::tuple{"NEURON_RT_VISIBLE_CORES", "0,0"},
                                           std::tuple{"NEURON_RT_VISIBLE_CORES", "0-4"}, std::tuple{"NEURON_RT_VISIBLE_CORES", "9"},
                                           std::tuple{"NEURON_RT_VISIBLE_CORES", "all"}, std::tuple{"NEURON_RT_NUM_CORES", "5"},
                                           std::tuple{"NEURON_RT_NUM_CORES", "-1"}, std::tuple{"NEURON_RT_NUM_CORES", ""},
                                           std::tuple{"NEURON_LOGICAL_NC_CONFIG", "3"}, std::tuple{"NEURON_LOGICAL_NC_CONFIG", "0"},
                                           std::tuple{"NEURON_RT_VIRTUAL_CORE_SIZE", "two"},
                                           std::tuple{"SOFTNEURON_INSTANCE_TYPE", "p5.48xlarge"},
                                           std::tuple{"SOFTNEURON_INSTANCE_TYPE", ""}, std::tuple{"SOFTNEURON_HBM_BYTES", "lots"}));

TEST(Topology, CoresOfTrainium1CannotBeGrouped) {
  const auto error = error_of([] { topology_of({{"SOFTNEURON_INSTANCE_TYPE", "trn1.2xlarge"}, {"NEURON_LOGICAL_NC_CONFIG", "2"}}); });
  EXPECT_NE(error.text.find("trn1.2xlarge"), std::string::npos) << error.text;
  EXPECT_EQ(topology_of({{"SOFTNEURON_INSTANCE_TYPE", "trn1.2xlarge"}, {"NEURON_LOGICAL_NC_CONFIG", "1"}}).cores().size(), 2U);
}

}  // namespace
}  // namespace neuron::runtime
