// Which processor cores a rank runs on.
#pragma once

namespace neuron::distributed {

// Gives each of the host's ranks an equal, contiguous share of the cores that this process may use: all threads of the process, and what
// PyTorch's thread pool may use. Does nothing when there are fewer cores than ranks, when there is one rank, and with
// TORCH_NEURONX_BIND_CORES=0. Returns the number of cores of the share, 0 when nothing was bound. The first call counts, later ones do
// nothing.
int bind_to_cores(int local_rank, int local_size);

}  // namespace neuron::distributed
