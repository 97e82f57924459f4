// Changing the size of a storage in device memory.
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>

namespace neuron::device {

// Gives the storage `bytes` bytes on its own core. Zero frees its memory; otherwise old bytes are kept as far as they fit. Raises if the
// storage is not resizable (it stands on foreign memory), and leaves it unchanged if the core has no memory left.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

}  // namespace neuron::device
