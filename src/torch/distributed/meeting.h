// How the ranks of a group find each other, and which transport they get: shared memory when all are on one host, else one within hosts and
// one between.
#pragma once

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "torch/distributed/group.h"

namespace neuron::distributed {

// Makes a Gloo backend of all ranks; its C++ headers are not part of a PyTorch wheel, so it comes from Python. To be set before the first
// group.
using GlooFactory = std::function<c10::intrusive_ptr<c10d::Backend>(c10::intrusive_ptr<c10d::Store>, int, int, std::chrono::milliseconds)>;
void set_gloo_factory(GlooFactory factory);

// Announces the rank at once.
Group::Meeting meeting_of(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

}  // namespace neuron::distributed
