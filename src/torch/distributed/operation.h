// One collective of a process group, from its checked arguments to its result.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "collectives/communicator.h"
#include "torch/distributed/group.h"
#include "torch/distributed/staging.h"

namespace neuron::distributed {

// It owns all that it needs: the process group may be gone when it runs.
struct Operation {
  using Body = std::function<void(collectives::Communicator&, const collectives::Call&)>;

  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";
  std::chrono::milliseconds timeout{0};
  bool asynchronous = true;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  Staging staging;
  std::shared_ptr<Group> group;
  Body body;
  std::uint64_t record = 0;  // its entry in the flight recorder

  // Waits for the group to have met. Raises what describe_error() makes of what the transport throws.
  void run(std::uint64_t sequence);
};

// What users see of an error on the way between ranks, as DistBackendError or ValueError; other exceptions (Ctrl-C, bad arguments) pass as
// they are. The first one of a process writes the flight recorder's file.
std::exception_ptr describe_error(const Group& group, const std::string& operation, std::exception_ptr error);

}  // namespace neuron::distributed
