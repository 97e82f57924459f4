// Pinned host memory: page-aligned host blocks, cached for reuse, that `Tensor.pin_memory()` and DataLoader(pin_memory=True) copy batches
// into.
#pragma once

#include <c10/core/Allocator.h>

namespace neuron::device {

// CPU-tagged memory; also registered with torch as the host allocator of the device (torch.accelerator.empty_host_cache()).
c10::Allocator& pinned_host_allocator();

// Whether the address lies inside a block of that allocator.
bool is_pinned_host_memory(const void* address) noexcept;

}  // namespace neuron::device
