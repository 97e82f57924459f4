// Which process this is, without system calls: forked children are told from their parent, and processes of different pid namespaces apart.
#pragma once

#include <cstdint>

namespace neuron::collectives {

// A random number that no other process has; a forked child gets its own.
[[nodiscard]] std::uint64_t process_token();

// Grows with each fork() between the first call in some ancestor and this process. An object that remembers it knows whether it was
// inherited.
[[nodiscard]] std::uint64_t fork_generation();

// 64 random bits from the kernel.
[[nodiscard]] std::uint64_t random_bits();

}  // namespace neuron::collectives
