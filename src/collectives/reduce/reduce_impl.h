// Reductions as plain loops, which the compiler vectorises for the instruction set of the file that includes this. That file defines
// NEURON_REDUCE_TABLE, the name of its table. Everything here is in an unnamed namespace: one copy per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

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

// What element i of several sources gives, in their order.
template <typename Format, typename Op, Extra extra, std::size_t... I>
typename Format::Value folded(typename Format::Value value, const typename Format::Storage* const* sources, const double* factors,
                              std::size_t i, std::index_sequence<I...>) {
  ((value = Op::combine(value, load<Format, extra>(sources[I], i, factors[I]))), ...);
  return value;
}

// The loops say `ivdep`: output may be one of the sources, which makes no iteration depend on another.

// All sources in one pass.
template <typename Format, typename Op, Extra extra, int number>
void reduce_at_once(const typename Format::Storage* const* all, const double* all_factors, typename Format::Storage* out,
                    std::size_t count) {
  const typename Format::Storage* sources[number];
  double factors[number];
  for (int r = 0; r < number; ++r) {
    sources[r] = all[r];
    factors[r] = all_factors[r];
  }
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = finish<Format, extra>(folded<Format, Op, extra>(load<Format, extra>(sources[0], i, factors[0]), sources + 1, factors + 1, i,
                                                             std::make_index_sequence<number - 1>()),
                                   number);
  }
}

// Adds `number` sources to a block of sums.
template <typename Format, typename Op, Extra extra, int number>
void accumulate(typename Format::Value* sums, const typename Format::Storage* const* all, const double* all_factors, std::size_t begin,
                std::size_t count) {
  const typename Format::Storage* sources[number];
  double factors[number];
  for (int r = 0; r < number; ++r) {
    sources[r] = all[r] + begin;
    factors[r] = all_factors[r];
  }
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = folded<Format, Op, extra>(sums[i], sources, factors, i, std::make_index_sequence<number>());
  }
}

template <typename Format, typename Op, Extra extra>
void reduce(const void* const* sources, int number, const double* factors, void* output, std::size_t count) {
  using Storage = typename Format::Storage;
  constexpr double kUnused[4]{};
  const auto* const* const typed = reinterpret_cast<const Storage* const*>(sources);
  auto* const out = static_cast<Storage*>(output);
  const auto factor = [&](int r) { return extra == Extra::kScale ? factors + r : kUnused; };
  if (number == 2) {
    return reduce_at_once<Format, Op, extra, 2>(typed, factor(0), out, count);
  }
  if (number == 4) {
    return reduce_at_once<Format, Op, extra, 4>(typed, factor(0), out, count);
  }
  // Any number: the sums of one block stay in the first-level cache.
  constexpr std::size_t kBlock = 512;
  typename Format::Value sums[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t block = count - begin < kBlock ? count - begin : kBlock;
    for (std::size_t i = 0; i < block; ++i) {
      sums[i] = load<Format, extra>(typed[0] + begin, i, *factor(0));
    }
    int next = 1;
    for (; next + 4 <= number; next += 4) {
      accumulate<Format, Op, extra, 4>(sums, typed + next, factor(next), begin, block);
    }
    for (; next < number; ++next) {
      accumulate<Format, Op, extra, 1>(sums, typed + next, factor(next), begin, block);
    }
    for (std::size_t i = 0; i < block; ++i) {
      out[begin + i] = finish<Format, extra>(sums[i], number);
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
