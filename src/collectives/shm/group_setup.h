// How the ranks of a group meet in one segment, through a key-value store.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/rendezvous.h"
#include "collectives/shm/member.h"
#include "runtime/memory/shared_segments.h"

namespace neuron::collectives {

// Rank 0 creates the segment and tells its name; all map it; when all have, rank 0 removes the name. On failure every rank throws, soon,
// and with the reason of the rank that failed. Blocks until all are there, or throws Error(kTimeout).
// `memory` (may be null) is where this rank's shareable memory is from.
std::unique_ptr<Member> meet(KeyValueStore& store, const std::string& group, int rank, int size, std::chrono::milliseconds timeout,
                             std::function<void()> check_interrupt, const runtime::SharedSegments* memory);

}  // namespace neuron::collectives
