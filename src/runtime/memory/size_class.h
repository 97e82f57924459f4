// Size classes and pools: how a request is rounded, which pool serves it, and how free blocks are binned. Constant time, no tables.
//
// Classes are multiples of 256 B up to 8 KiB, then 16 per doubling, so rounding wastes less than 6.25 %.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace neuron::runtime {

inline constexpr std::size_t kKiB = std::size_t{1} << 10;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline constexpr std::size_t kMinBlock = 256;          // also the alignment of small blocks
inline constexpr std::size_t kLargeAlignment = 512;    // granularity of everything in the larger pools
inline constexpr std::size_t kSmallLimit = kMiB;       // requests below go to the small pool
inline constexpr std::size_t kExactLimit = 16 * kMiB;  // requests from here on are not rounded to a class
inline constexpr std::size_t kPage = 4 * kKiB;
inline constexpr std::size_t kHugePage = 2 * kMiB;

// Blocks of the larger pools are followed by a gap of this size, so that neighbours do not start at the same offset modulo 4096: operands
// of one operator would otherwise compete for the same cache sets. The gap is part of the segment, never of a block's accounted size.
inline constexpr std::size_t kStagger = 512;

// Statistics know "small" and "large"; the allocator keeps requests that are not rounded apart, so that they do not break up the segments
// shared by medium blocks and the other way round.
enum class PoolKind : std::uint8_t { kSmall, kMedium, kHuge };
inline constexpr std::size_t kPools = 3;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) noexcept { return (value + multiple - 1) & ~(multiple - 1); }

constexpr PoolKind pool_of(std::size_t bytes) noexcept {
  return bytes < kSmallLimit ? PoolKind::kSmall : bytes < kExactLimit ? PoolKind::kMedium : PoolKind::kHuge;
}

namespace size_class {

inline constexpr std::size_t kLinear = 32;      // classes 0..31 are multiples of kMinBlock
inline constexpr unsigned kStepBits = 4;        // 16 classes per doubling above
inline constexpr unsigned kLinearExponent = 5;  // log2(kLinear)
inline constexpr unsigned kMaxExponent = 39;    // sizes below 2^40 units of 256 B
inline constexpr std::size_t kCount = kLinear + (std::size_t{kMaxExponent - kLinearExponent + 1} << kStepBits);

// log2 of the distance between classes around `units`.
constexpr unsigned step_shift(std::size_t units) noexcept {
  return units < kLinear ? 0U : static_cast<unsigned>(std::bit_width(units)) - 1U - kStepBits;
}

constexpr std::size_t index_of_units(std::size_t units) noexcept {
  if (units < kLinear) {
    return units;
  }
  const unsigned shift = step_shift(units);
  return kLinear + (std::size_t{shift + kStepBits - kLinearExponent} << kStepBits) + ((units >> shift) & ((1U << kStepBits) - 1U));
}

// Largest class whose size is at most `bytes`; `bytes` must be at least kMinBlock.
constexpr std::size_t floor_index(std::size_t bytes) noexcept { return index_of_units(bytes / kMinBlock); }

// `bytes` (> 0) rounded up to a class size.
constexpr std::size_t round_to_class(std::size_t bytes) noexcept {
  const std::size_t units = (bytes + kMinBlock - 1) / kMinBlock;
  return round_up(units, std::size_t{1} << step_shift(units)) * kMinBlock;
}

// Size of a class.
constexpr std::size_t size_of(std::size_t index) noexcept {
  if (index < kLinear) {
    return index * kMinBlock;
  }
  const std::size_t above = index - kLinear;
  const std::size_t mantissa = (std::size_t{1} << kStepBits) + (above & ((1U << kStepBits) - 1U));
  return (mantissa << ((above >> kStepBits) + kLinearExponent - kStepBits)) * kMinBlock;
}

// Classes that requests of the small pool can have.
inline constexpr std::size_t kSmallCount = floor_index(kSmallLimit) + 1;

}  // namespace size_class

// What a request of `bytes` (> 0) becomes.
constexpr std::size_t usable_size(std::size_t bytes) noexcept {
  return bytes < kExactLimit ? size_class::round_to_class(bytes) : round_up(bytes, kLargeAlignment);
}

// Bytes of a segment that a block of this usable size takes.
constexpr std::size_t slot_size(std::size_t usable, PoolKind pool) noexcept {
  return pool == PoolKind::kSmall ? usable : round_up(usable, kLargeAlignment) + kStagger;
}

}  // namespace neuron::runtime
