// Memory that a kernel needs only during a call. It belongs to the calling thread, which keeps it for its next call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neuron::kernels {

// What the memory is for: each purpose has its own, so that a thread which packs for its team can also compute.
enum class Scratch : std::uint8_t { kShared, kPanel, kRows, kTile, kTransposed, kCount };

// At least `bytes` bytes at a multiple of 64, valid until the thread asks for more under the same purpose. Contents are undefined.
void* scratch(Scratch purpose, std::size_t bytes);

}  // namespace neuron::kernels
