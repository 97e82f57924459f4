// The communicator of ranks on one host: data passes through one shared-memory segment per group.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/communicator.h"
#include "collectives/error.h"
#include "collectives/rendezvous.h"
#include "runtime/memory/shared_segments.h"

namespace neuron::collectives {

struct SharedMemoryOptions {
  // Called at most about every 50 ms on a thread that waits. It may throw (Ctrl-C): the call ends with that exception, and from then on the
  // communicator is broken, here with the exception's text and on the other ranks with Error(kAborted).
  std::function<void()> check_interrupt;
  // Where this rank's buffers may be from; must outlive the communicator. Where the buffers of all ranks are from such memory, large
  // operations read and write them where they are. Nothing of it is shared before its enable(), which must come before the communicator is
  // made.
  runtime::SharedSegments* memory = nullptr;
  // Below, memory is not shared by the device's allocator (small blocks), and waiting for all ranks once more takes as long as it saves.
  std::size_t smallest_direct = std::size_t{1} << 20;
};

// Collective over the group: every rank calls it with the same `group_name`, which must be unique in the store, and `size`. Returns when
// all ranks have mapped the segment, whose name is gone from /dev/shm by then. Throws Error(kTimeout) when a rank does not come within
// `timeout` and Error(kSystem) when shared memory cannot be had.
std::unique_ptr<Communicator> make_shared_memory_communicator(KeyValueStore& store, const std::string& group_name, int rank, int size,
                                                              std::chrono::milliseconds timeout, SharedMemoryOptions options = {});

}  // namespace neuron::collectives
