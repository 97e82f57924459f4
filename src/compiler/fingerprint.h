// A 128-bit digest of a program, 32 hexadecimal digits: the key of the in-memory cache. It depends on the text without the name and on the
// bytes of the constants, never on Python stacks or source lines, so equal graphs traced twice share one executable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/program.h"

namespace neuron::compiler {

// Two independent 64-bit lanes over the same bytes; not cryptographic.
class Digest {
 public:
  void update(const void* data, std::size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex() const;

 private:
  std::uint64_t low_ = 0x9e3779b97f4a7c15ULL;
  std::uint64_t high_ = 0xc2b2ae3d27d4eb4fULL;
  std::uint64_t length_ = 0;
};

// Feeds the text of the program, without its name, to the digest.
void update(Digest& digest, const Program& program);

}  // namespace neuron::compiler
