// The process groups that exist, so that the process can leave them in order when it ends.
#pragma once

#include "torch/distributed/process_group_neuron.h"

namespace neuron::distributed {

c10::intrusive_ptr<ProcessGroupNeuron> make_live(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                 c10::intrusive_ptr<ProcessGroupNeuron::Options> options);

// Before the interpreter shuts down: what is still under way ends with an error, threads end, segments are given back. No thread of ours
// runs afterwards, so none can let go of Python objects that are gone.
void leave_all() noexcept;

}  // namespace neuron::distributed
