// The sum of sparse tensors over a group.
#pragma once

#include <ATen/core/Tensor.h>

#include "collectives/communicator.h"

namespace neuron::distributed {

// Replaces `tensor`, which has sparse layout, by the coalesced sum of the tensors of all ranks, which may differ in their number of
// entries. The order of the sum is that of the ranks, so that all have the same bits. Throws collectives::Error for shapes that differ.
void sum_sparse(collectives::Communicator& communicator, const collectives::Call& call, const at::Tensor& tensor);

}  // namespace neuron::distributed
