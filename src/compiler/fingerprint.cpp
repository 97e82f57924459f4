// The digest of a program.
#include "compiler/fingerprint.h"

#include <array>
#include <cstdio>
#include <cstring>

#include "compiler/printer.h"

namespace neuron::compiler {
namespace {

// The finaliser of SplitMix64: every bit of the input changes about half of the output.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

void Digest::update(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  length_ += size;
  while (size > 0) {
    std::uint64_t word = 0;
    const std::size_t taken = size < sizeof(word) ? size : sizeof(word);
    std::memcpy(&word, bytes, taken);
    low_ = mix(low_ ^ word);
    high_ = mix(high_ + word * 0x9fb21c651e98df25ULL);
    bytes += taken;
    size -= taken;
  }
  // Chunks "ab","c" and "a","bc" differ: each chunk ends with its length.
  low_ = mix(low_ ^ length_);
  high_ = mix(high_ + length_);
}

std::string Digest::hex() const {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(mix(high_ ^ low_)),
                static_cast<unsigned long long>(mix(low_ + length_)));
  return text.data();
}

void update(Digest& digest, const Program& program) {
  Program nameless = program;
  nameless.set_name({});
  digest.update(to_string(nameless));
}

}  // namespace neuron::compiler
