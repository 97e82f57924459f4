// Placeholder while the transport is written: a group of one rank.
#include "collectives/shared_memory_communicator.h"

namespace neuron::collectives {

std::unique_ptr<Communicator> make_shared_memory_communicator(KeyValueStore&, const std::string&, int, int, std::chrono::milliseconds,
                                                              SharedMemoryOptions) {
  throw Error(ErrorCode::kSystem, "shared-memory communicator: not written yet");
}

}  // namespace neuron::collectives
