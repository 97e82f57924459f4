// Reductions as plain loops, which the compiler vectorises for the instruction set of the file that includes this. That file defines
// NEURON_REDUCE_TABLE, the name of its table. Everything here is in an unnamed namespace: one copy per instruction set.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/reduce/number_formats.h"
#include "collectives/reduce/reduce_tables.h"

namespace neuron::collectives {
namespace {

// Signed overflow is undefined, so wrapping arithmetic is done on unsigned numbers of at least the width of int.
template <typename Value, typename Operation>
Value arithmetic(Value a, Value b, Operation operation) {
  if constexpr (std::is_integral_v<Value>) {
    using Wide = std::make_unsigned_t<std::common_type_t<Value, int>>;
    return static_cast<Value>(operation(static_cast<Wide>(a), static_cast<Wide>(b)));
  } else {
    return operation(a, b);
  }
}

struct Sum {
  template <typename Value>
  static Value combine(Value a, Value b) {
    if constexpr (requires { a.real; }) {
      return {a.real + b.real, a.imaginary + b.imaginary};
    } else {
      return arithmetic(a, b, [](auto x, auto y) { return x + y; });
    }
  }
};

struct Product {
  template <typename Value>
  static Value combine(Value a, Value b) {
    if constexpr (requires { a.real; }) {
      return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
    } else {
      return arithmetic(a, b, [](auto x, auto y) { return x * y; });
    }
  }
};

// Both keep a NaN from wherever it comes.
struct Minimum {
  template <typename Value>
  static Value combine(Value a, Value b) {
    return b < a || b != b ? b : a;
  }
};

struct Maximum {
  template <typename Value>
  static Value combine(Value a, Value b) {
    return b > a || b != b ? b : a;
  }
};

struct BitAnd {
  template <typename Value>
  static Value combine(Value a, Value b) {
    return static_cast<Value>(a & b);
  }
};

struct BitOr {
  template <typename Value>
  static Value combine(Value a, Value b) {
    return static_cast<Value>(a | b);
  }
};

struct BitXor {
  template <typename Value>
  static Value combine(Value a, Value b) {
    return static_cast<Value>(a ^ b);
  }
};

template <typename Value>
Value divided(Value value, int by) {
  if constexpr (requires { value.real; }) {
    return {value.real / static_cast<decltype(value.real)>(by), value.imaginary / static_cast<decltype(value.imaginary)>(by)};
  } else if constexpr (sizeof(Value) <= 2) {
    return static_cast<Value>(value / by);  // in int: the number of ranks need not fit into the type
  } else {
    return static_cast<Value>(value / static_cast<Value>(by));
  }
}

template <typename Value>
Value scaled(Value value, double factor) {
  if constexpr (requires { value.real; }) {
    using Part = decltype(value.real);
    return {value.real * static_cast<Part>(factor), value.imaginary * static_cast<Part>(factor)};
  } else {
    return static_cast<Value>(value * static_cast<Value>(factor));
  }
}

enum class Extra : std::uint8_t { kNone, kDivide, kScale };

template <typename Format, Extra extra>
auto load(const typename Format::Storage* source, std::size_t i, [[maybe_unused]] double factor) {
  if constexpr (extra == Extra::kScale) {
    return scaled(Format::load(source[i]), factor);
  } else {
    return Format::load(source[i]);
  }
}

template <typename Format, Extra extra>
typename Format::Storage finish(typename Format::Value value, [[maybe_unused]] int ranks) {
  if constexpr (extra == Extra::kDivide) {
    return Format::store(divided(value, ranks));
  } else {
    return Format::store(value);
  }
}

// The loops say `ivdep`: output may be one of the sources, which makes no iteration depend on another.
template <typename Format, typename Op, Extra extra>
void reduce(const void* const* sources, int number, const double* factors, void* output, std::size_t count) {
  using Storage = typename Format::Storage;
  const auto source = [&](int r) { return static_cast<const Storage*>(sources[r]); };
  const auto factor = [&](int r) { return extra == Extra::kScale ? factors[r] : 1.0; };
  auto* const out = static_cast<Storage*>(output);
  if (number == 2) {
    const Storage* const a = source(0);
    const Storage* const b = source(1);
    const double fa = factor(0);
    const double fb = factor(1);
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = finish<Format, extra>(Op::combine(load<Format, extra>(a, i, fa), load<Format, extra>(b, i, fb)), 2);
    }
    return;
  }
  // Any number: accumulators of one block stay in the first-level cache.
  constexpr std::size_t kBlock = 512;
  std::array<typename Format::Value, kBlock> sums;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t block = std::min(kBlock, count - begin);
    const Storage* const first = source(0) + begin;
    const double first_factor = factor(0);
    for (std::size_t i = 0; i < block; ++i) {
      sums[i] = load<Format, extra>(first, i, first_factor);
    }
    for (int r = 1; r < number; ++r) {
      const Storage* const next = source(r) + begin;
      const double next_factor = factor(r);
      for (std::size_t i = 0; i < block; ++i) {
        sums[i] = Op::combine(sums[i], load<Format, extra>(next, i, next_factor));
      }
    }
    Storage* const target = out + begin;
    for (std::size_t i = 0; i < block; ++i) {
      target[i] = finish<Format, extra>(sums[i], number);
    }
  }
}

// The kernels of one type; null where the pair has no meaning (reducible() in types.cpp says the same, and a test compares them).
template <typename Format>
ReduceKernel kernel_of([[maybe_unused]] DataType type, ReduceOp op) noexcept {
  using Value = typename Format::Value;
  constexpr bool kTruth = std::is_same_v<Format, Truth>;
  constexpr bool kInteger = std::is_integral_v<Value> && !kTruth;
  constexpr bool kComplex = requires(Value value) { value.real; };
  switch (op) {
    case ReduceOp::kSum:
      return &reduce<Format, std::conditional_t<kTruth, BitOr, Sum>, Extra::kNone>;
    case ReduceOp::kProduct:
#if defined(__FMA__) || defined(__AVX512F__)
      // g++ 12 fuses the products and the alternating sum of vectorised complex multiplication although -ffp-contract=off forbids it.
      if constexpr (kComplex) return reduce_generic(type, op);
#endif
      return &reduce<Format, std::conditional_t<kTruth, BitAnd, Product>, Extra::kNone>;
    case ReduceOp::kAverage:
      if constexpr (!kTruth) return &reduce<Format, Sum, Extra::kDivide>;
      break;
    case ReduceOp::kPreMultipliedSum:
      if constexpr (!kTruth && !kInteger) return &reduce<Format, Sum, Extra::kScale>;
      break;
    case ReduceOp::kMinimum:
      if constexpr (!kComplex) return &reduce<Format, Minimum, Extra::kNone>;
      break;
    case ReduceOp::kMaximum:
      if constexpr (!kComplex) return &reduce<Format, Maximum, Extra::kNone>;
      break;
    case ReduceOp::kBitAnd:
      if constexpr (kTruth || kInteger) return &reduce<Format, BitAnd, Extra::kNone>;
      break;
    case ReduceOp::kBitOr:
      if constexpr (kTruth || kInteger) return &reduce<Format, BitOr, Extra::kNone>;
      break;
    case ReduceOp::kBitXor:
      if constexpr (kTruth || kInteger) return &reduce<Format, BitXor, Extra::kNone>;
      break;
  }
  return nullptr;
}

}  // namespace

ReduceKernel NEURON_REDUCE_TABLE(DataType type, ReduceOp op) noexcept {
  switch (type) {
    case DataType::kBool:
      return kernel_of<Truth>(type, op);
    case DataType::kUInt8:
      return kernel_of<Plain<std::uint8_t>>(type, op);
    case DataType::kInt8:
      return kernel_of<Plain<std::int8_t>>(type, op);
    case DataType::kInt16:
      return kernel_of<Plain<std::int16_t>>(type, op);
    case DataType::kUInt16:
      return kernel_of<Plain<std::uint16_t>>(type, op);
    case DataType::kInt32:
      return kernel_of<Plain<std::int32_t>>(type, op);
    case DataType::kUInt32:
      return kernel_of<Plain<std::uint32_t>>(type, op);
    case DataType::kInt64:
      return kernel_of<Plain<std::int64_t>>(type, op);
    case DataType::kUInt64:
      return kernel_of<Plain<std::uint64_t>>(type, op);
    case DataType::kHalf:
      return kernel_of<Half>(type, op);
    case DataType::kBFloat16:
      return kernel_of<BFloat16>(type, op);
    case DataType::kFloat:
      return kernel_of<Plain<float>>(type, op);
    case DataType::kDouble:
      return kernel_of<Plain<double>>(type, op);
    case DataType::kFloat8E4M3FN:
      return kernel_of<Float8E4M3FN>(type, op);
    case DataType::kFloat8E5M2:
      return kernel_of<Float8E5M2>(type, op);
    case DataType::kFloat8E4M3FNUZ:
      return kernel_of<Float8E4M3FNUZ>(type, op);
    case DataType::kFloat8E5M2FNUZ:
      return kernel_of<Float8E5M2FNUZ>(type, op);
    case DataType::kFloat8E8M0FNU:
      return kernel_of<Float8E8M0FNU>(type, op);
    case DataType::kComplexHalf:
      return kernel_of<Complex<Half>>(type, op);
    case DataType::kComplexFloat:
      return kernel_of<Complex<Plain<float>>>(type, op);
    case DataType::kComplexDouble:
      return kernel_of<Complex<Plain<double>>>(type, op);
  }
  return nullptr;
}

}  // namespace neuron::collectives
