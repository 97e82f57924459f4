// The stream of random numbers that one operator call draws from, and Philox 4x32-10 (Salmon et al., SC11), the counter-based generator
// behind it.
#pragma once

#include <array>
#include <cstdint>

namespace neuron::kernels {

// Element i of a stream is a pure function of (seed, offset, i): neither the number of threads nor the instruction set can change it.
// Offsets are multiples of 4 and count elements, whatever their type, so two streams [offset, offset + n) that do not overlap never share
// numbers.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

// Philox counters are laid out as {block low, block high, plane, domain}. Block (offset + i) / 4 holds four elements; an element that needs
// more than 32 bits takes the rest from the same block of the next plane. Samplers that need an unknown number of words live in a domain of
// their own.
enum class PhiloxDomain : std::uint32_t { kElements = 0, kSampler = 1 };

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9;
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) noexcept {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + kPhiloxWeyl0, key[1] + kPhiloxWeyl1};
  }
  return counter;
}

constexpr PhiloxKey philox_key(std::uint64_t seed) noexcept {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

}  // namespace neuron::kernels
