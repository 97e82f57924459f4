// How the elements of A and B become the 32-bit words that the inner loops multiply: a float, or a pair of bfloat16 along k.
#pragma once

#include "kernels/isa/vector_level.h"

namespace neuron::kernels {
namespace {

// A format says, for kLanes words at once:
//   Element        what is stored in memory
//   kStep          elements along k in a word
//   kPairs         whether words are pairs of bfloat16
//   kPlain         whether words along k are the bytes in memory, so that rows can be used where they are
//   along(p)       words of kLanes * kStep elements that follow each other along k
//   across(p, q)   words of kLanes neighbouring rows or columns; p at k, q at k + 1 (unused if kStep is 1)
//   kDotStep, kDotParts, along_dot(p, parts)
//                  for sums of products along k in any order within kDotStep elements: kDotParts vectors of words
struct FloatFormat {
  using Element = float;
  static constexpr int kStep = 1;
  static constexpr bool kPairs = false;
  static constexpr bool kPlain = true;
  static constexpr int kDotStep = kLanes;
  static constexpr int kDotParts = 1;
  [[gnu::always_inline]] static Words along(const Element* p) { return load<Words>(p); }
  [[gnu::always_inline]] static Words across(const Element* p, const Element*) { return load<Words>(p); }
  [[gnu::always_inline]] static void along_dot(const Element* p, Words (&parts)[1]) { parts[0] = load<Words>(p); }
};

struct PairFormat {
  using Element = std::uint16_t;
  static constexpr int kStep = 2;
  static constexpr bool kPairs = true;
  static constexpr bool kPlain = true;
  static constexpr int kDotStep = 2 * kLanes;
  static constexpr int kDotParts = 1;
  [[gnu::always_inline]] static Words along(const Element* p) { return load<Words>(p); }
  [[gnu::always_inline]] static Words across(const Element* p, const Element* q) {
    return zero_extend(load<Halves>(p)) | zero_extend(load<Halves>(q)) << 16;
  }
  [[gnu::always_inline]] static void along_dot(const Element* p, Words (&parts)[1]) { parts[0] = load<Words>(p); }
};

struct WidenedBf16Format {
  using Element = std::uint16_t;
  static constexpr int kStep = 1;
  static constexpr bool kPairs = false;
  static constexpr bool kPlain = false;
  static constexpr int kDotStep = 2 * kLanes;
  static constexpr int kDotParts = 2;
  [[gnu::always_inline]] static Words along(const Element* p) { return (Words)widen_bf16(load<Halves>(p)); }
  [[gnu::always_inline]] static Words across(const Element* p, const Element*) { return along(p); }
  // Even elements, then odd ones: one operation each.
  [[gnu::always_inline]] static void along_dot(const Element* p, Words (&parts)[2]) {
    const auto pairs = load<Words>(p);
    parts[0] = pairs << 16;
    parts[1] = pairs & 0xffff0000U;
  }
};

struct WidenedF16Format {
  using Element = std::uint16_t;
  static constexpr int kStep = 1;
  static constexpr bool kPairs = false;
  static constexpr bool kPlain = false;
  static constexpr int kDotStep = kLanes;
  static constexpr int kDotParts = 1;
  [[gnu::always_inline]] static Words along(const Element* p) { return (Words)widen_f16(load<Halves>(p)); }
  [[gnu::always_inline]] static Words across(const Element* p, const Element*) { return along(p); }
  [[gnu::always_inline]] static void along_dot(const Element* p, Words (&parts)[1]) { parts[0] = along(p); }
};

template <class Format>
[[gnu::always_inline]] inline Floats multiply_words(Floats sum, Words a, Words b) {
  if constexpr (Format::kPairs) {
    return dot_pairs(sum, a, b);
  } else {
    return multiply_add(sum, (Floats)a, (Floats)b);
  }
}

// One operand as the drivers see it: `rows` of A, or columns of B.
template <class Format>
struct Operand {
  const typename Format::Element* data;
  std::int64_t row_stride;
  std::int64_t k_stride;

  const typename Format::Element* at(std::int64_t row, std::int64_t k) const { return data + row * row_stride + k * k_stride; }
};

template <class Format>
std::int64_t words_of(std::int64_t k) {
  return (k + Format::kStep - 1) / Format::kStep;
}

inline std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace
}  // namespace neuron::kernels
