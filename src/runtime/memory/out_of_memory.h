// The texts of the two ways to run out of memory: of the device's HBM, and of the host that stands in for it.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/memory/stats.h"

namespace neuron::runtime {

// Contains what users and libraries match: " out of memory." (accelerate), "Neuron OOM: requested_size=<bytes> total_hbm=<bytes>" and
// "NRT_RESOURCE" (the real device).
std::string out_of_device_memory_text(int device, std::size_t requested, std::size_t total, const AllocatorStats& stats);

std::string out_of_host_memory_text(int device, std::size_t requested, const AllocatorStats& stats);

// "512 bytes", "1.50 MiB", "24.00 GiB".
std::string format_bytes(std::size_t bytes);

}  // namespace neuron::runtime
