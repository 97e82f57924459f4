// Which ranks can share memory.
#pragma once

#include <string>

namespace neuron::distributed {

// The same text in all processes that see one /dev/shm of one running kernel, so containers that do not share it count as hosts of their
// own. TORCH_NEURONX_HOST_ID replaces it, for hosts that tests make up.
std::string host_identity();

}  // namespace neuron::distributed
