// PyTorch's intra-op threads, lent to our kernels.
#pragma once

#include "kernels/threads.h"

namespace neuron::device {

// As many members as torch.get_num_threads() says, from the OpenMP pool of the calling thread that PyTorch's own kernels use too; one
// inside a parallel region, which therefore never nests. Stateless: any number of threads may use it at once.
kernels::Threads& torch_threads() noexcept;

}  // namespace neuron::device
