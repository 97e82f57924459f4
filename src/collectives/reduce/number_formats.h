// Number formats as stored, and the types in which reductions compute: narrow floating point numbers in float32, integers in their own
// width (sums wrap). Written without branches and lookup tables, so that loops over them vectorise, and the same bits on every instruction
// set. Included once per instruction set, hence the unnamed namespace: the linker must not hand code of one to another.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace neuron::collectives {
namespace {

// What the codes beyond the finite numbers mean.
enum class Specials : std::uint8_t {
  kIeee,        // infinities and NaN in the largest exponent
  kNanOnly,     // no infinity; all bits but the sign set is NaN ("fn")
  kNoMinusZero  // no infinity, no minus zero, whose code is the only NaN ("fnuz")
};

// A floating point number of at most 16 bits: sign, exponent with `Bias`, `MantissaBits` bits of mantissa.
template <typename Bits, int MantissaBits, int Bias, Specials specials>
struct NarrowFloat {
  using Storage = Bits;
  using Value = float;

  static constexpr int kShift = 23 - MantissaBits;
  static constexpr std::uint32_t kSign = 1U << (sizeof(Bits) * 8 - 1);
  static constexpr std::uint32_t kMagnitude = kSign - 1;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Bias) << 23;
  // As a float: 2^(1 - Bias), the smallest normal number.
  static constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - Bias) << 23;
  // As a float: the number whose last mantissa bit weighs as much as the format's smallest number.
  static constexpr std::uint32_t kDenormalMagic = static_cast<std::uint32_t>(128 - Bias + kShift) << 23;
  static constexpr std::uint32_t kInfinity = kMagnitude & ~((1U << MantissaBits) - 1);  // kIeee: the code; otherwise unused
  static constexpr std::uint32_t kNan = specials == Specials::kIeee
                                            ? kInfinity | (sizeof(Bits) == 1 ? kMagnitude : 1U << (MantissaBits - 1))
                                        : specials == Specials::kNanOnly ? kMagnitude
                                                                         : kSign;

  static Value load(Bits stored) {
    const std::uint32_t magnitude = stored & kMagnitude;
    const std::uint32_t sign = static_cast<std::uint32_t>(stored & kSign) << (32 - sizeof(Bits) * 8);
    const std::uint32_t normal = (magnitude << kShift) + kRebias;
    // A subnormal number is put below a number whose last bit has its weight; the subtraction is exact.
    const float below = std::bit_cast<float>(kSmallestNormal | (magnitude << kShift)) - std::bit_cast<float>(kSmallestNormal);
    std::uint32_t bits = magnitude < (1U << MantissaBits) ? std::bit_cast<std::uint32_t>(below) : normal;
    if constexpr (specials == Specials::kIeee) {
      bits = magnitude >= kInfinity ? 0x7F800000U | (magnitude << kShift) : bits;
    } else if constexpr (specials == Specials::kNanOnly) {
      bits = magnitude == kNan ? 0x7FC00000U : bits;
    } else {
      bits = stored == kNan ? 0x7FC00000U : bits;
    }
    return std::bit_cast<float>(bits | sign);
  }

  // Rounds to nearest, ties to even; what is too large becomes infinity, or NaN where there is none.
  static Bits store(Value value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = all & 0x7FFFFFFFU;
    const std::uint32_t sign = (all & 0x80000000U) >> (32 - sizeof(Bits) * 8);
    const std::uint32_t odd = (magnitude >> kShift) & 1U;
    const std::uint32_t normal = (magnitude - kRebias + ((1U << (kShift - 1)) - 1U) + odd) >> kShift;
    // The addition rounds to the smallest number's weight.
    const std::uint32_t below =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kDenormalMagic)) - kDenormalMagic;
    std::uint32_t code = magnitude < kSmallestNormal ? below : normal;
    constexpr std::uint32_t kOverflow = specials == Specials::kIeee ? kInfinity : kNan;
    constexpr std::uint32_t kLargest = specials == Specials::kIeee      ? kInfinity - 1
                                       : specials == Specials::kNanOnly ? kMagnitude - 1
                                                                        : kMagnitude;
    // Beyond 2^127 the sum above would wrap; everything from there on is too large for all formats.
    code = code > kLargest || magnitude >= 0x7F000000U ? kOverflow : code;
    if constexpr (specials == Specials::kNoMinusZero) {
      code = code == 0 ? 0 : code | sign;
    } else {
      code |= sign;
    }
    // NaN has no sign: which operand's it takes over differs between instruction sets.
    code = magnitude > 0x7F800000U ? kNan : code;
    return static_cast<Bits>(code);
  }
};

using Half = NarrowFloat<std::uint16_t, 10, 15, Specials::kIeee>;
using Float8E4M3FN = NarrowFloat<std::uint8_t, 3, 7, Specials::kNanOnly>;
using Float8E5M2 = NarrowFloat<std::uint8_t, 2, 15, Specials::kIeee>;
using Float8E4M3FNUZ = NarrowFloat<std::uint8_t, 3, 8, Specials::kNoMinusZero>;
using Float8E5M2FNUZ = NarrowFloat<std::uint8_t, 2, 16, Specials::kNoMinusZero>;

struct BFloat16 {
  using Storage = std::uint16_t;
  using Value = float;
  static Value load(Storage stored) { return std::bit_cast<float>(static_cast<std::uint32_t>(stored) << 16); }
  static Storage store(Value value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    return static_cast<Storage>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
  }
};

// Powers of two from 2^-127 to 2^127, and NaN; no sign, no zero.
struct Float8E8M0FNU {
  using Storage = std::uint8_t;
  using Value = float;
  static Value load(Storage stored) {
    const std::uint32_t exponent = stored;
    return std::bit_cast<float>(exponent == 0 ? 0x00400000U : exponent == 255 ? 0x7FC00000U : exponent << 23);
  }
  // The nearest power of two; half way up, except at the smallest. The sign is dropped.
  static Storage store(Value value) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa = magnitude & 0x7FFFFFU;
    const std::uint32_t up = mantissa > 0x400000U || (mantissa == 0x400000U && exponent > 0) ? 1U : 0U;
    return static_cast<Storage>(exponent == 255 ? 255U : exponent + up);
  }
};

template <typename Number>
struct Plain {
  using Storage = Number;
  using Value = Number;
  static Value load(Storage stored) { return stored; }
  static Storage store(Value value) { return value; }
};

// Any byte but 0 is true.
struct Truth {
  using Storage = std::uint8_t;
  using Value = std::uint8_t;
  static Value load(Storage stored) { return static_cast<Value>(stored != 0); }
  static Storage store(Value value) { return value; }
};

// Two numbers of `Part`. std::complex would bring C99's rules for infinities, which cost a branch per product.
template <typename Part>
struct Complex {
  struct Storage {
    typename Part::Storage real;
    typename Part::Storage imaginary;
  };
  struct Value {
    typename Part::Value real;
    typename Part::Value imaginary;
  };
  static Value load(Storage stored) { return {Part::load(stored.real), Part::load(stored.imaginary)}; }
  static Storage store(Value value) { return {Part::store(value.real), Part::store(value.imaginary)}; }
};

}  // namespace
}  // namespace neuron::collectives
