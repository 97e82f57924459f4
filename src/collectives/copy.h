// Copies for large results.
#pragma once

#include <cstddef>
#include <span>

namespace neuron::collectives {

// Results of at least this size are written past the caches: they would not fit anyway, and a write that is cached first reads the line
// from memory.
inline constexpr std::size_t kStreamingBytes = std::size_t{8} << 20;

// memcpy, or the same with stores that bypass the caches. The ranges do not overlap.
void copy(void* destination, const void* source, std::size_t bytes, bool streaming) noexcept;

// One block of a streaming copy, which also fetches as many bytes of each of `next` into the first-level cache: stores past the caches
// leave the way from memory idle otherwise. What lies there need not be readable. After the last block, end_of_blocks() is due: other
// threads may see the blocks only then, when they are told of them.
void copy_block_and_fetch(void* destination, const void* source, std::size_t bytes, std::span<const void* const> next) noexcept;
void end_of_blocks() noexcept;

}  // namespace neuron::collectives
