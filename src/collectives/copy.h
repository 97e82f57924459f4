// Copies for large results.
#pragma once

#include <cstddef>

namespace neuron::collectives {

// Results of at least this size are written past the caches: they would not fit anyway, and a write that is cached first reads the line
// from memory.
inline constexpr std::size_t kStreamingBytes = std::size_t{8} << 20;

// memcpy, or the same with stores that bypass the caches. The ranges do not overlap.
void copy(void* destination, const void* source, std::size_t bytes, bool streaming) noexcept;

}  // namespace neuron::collectives
