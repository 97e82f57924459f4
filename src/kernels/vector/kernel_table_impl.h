// The kernels of one instruction set, as loops that the compiler vectorises, and the table of them. Included by one translation unit per
// instruction set. Loops carry no dependence from one element to the next, also where the result overwrites an operand.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/vector/element_operations.h"
#include "kernels/vector/kernel_table.h"

namespace neuron::kernels::vector {
namespace {

template <Lane lane>
using LaneType = std::conditional_t<lane == Lane::kFloat, float, std::conditional_t<lane == Lane::kDouble, double, std::int64_t>>;

template <Rounding rounding, typename T>
T rounded(T x) {
  if constexpr (rounding == Rounding::kBF16 && kIsF32<T>) {
    return round_bf16(x);
  } else {
    return x;
  }
}

constexpr bool is_number(int mask, int operand) { return ((mask >> operand) & 1) != 0; }

template <Op op, typename T, Rounding rounding, int mask>
void element_kernel(void* out, const void* first, const void* second, const void* third, std::int64_t n) {
  const T* const a = static_cast<const T*>(first);
  const T* const b = static_cast<const T*>(second);
  const T* const c = static_cast<const T*>(third);
  [[maybe_unused]] const T a0 = is_number(mask, 0) ? *a : T{};
  [[maybe_unused]] const T b0 = is_number(mask, 1) ? *b : T{};
  [[maybe_unused]] const T c0 = is_number(mask, 2) ? *c : T{};
  if constexpr (op == Op::kWhere) {
    T* const o = static_cast<T*>(out);
    const float* const condition = static_cast<const float*>(first);
    const float condition0 = is_number(mask, 0) ? *condition : 0.0F;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const T yes = is_number(mask, 1) ? b0 : b[i];
      const T no = is_number(mask, 2) ? c0 : c[i];
      o[i] = (is_number(mask, 0) ? condition0 : condition[i]) != 0.0F ? yes : no;
    }
  } else if constexpr (op == Op::kIsNan) {
    float* const o = static_cast<float*>(out);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      o[i] = a[i] != a[i] ? 1.0F : 0.0F;
    }
  } else if constexpr (is_comparison(op)) {
    float* const o = static_cast<float*>(out);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      o[i] = compare<op, T>(is_number(mask, 0) ? a0 : a[i], is_number(mask, 1) ? b0 : b[i]);
    }
  } else if constexpr (op == Op::kSin || op == Op::kCos) {
    T* const o = static_cast<T*>(out);
    if constexpr (kIsF32<T>) {
      bool large = false;
      for (std::int64_t i = 0; i < n; ++i) {
        large |= !(std::fabs(a[i]) < kLargestAngle);
      }
      if (!large) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < n; ++i) {
          o[i] = rounded<rounding>(sine_f32(a[i], op == Op::kSin ? 0 : 1));
        }
        return;
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      o[i] = rounded<rounding>(op == Op::kSin ? std::sin(a[i]) : std::cos(a[i]));
    }
  } else {
    T* const o = static_cast<T*>(out);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const T x = is_number(mask, 0) ? a0 : a[i];
      if constexpr (op == Op::kMultiplyAdd) {
        o[i] = rounded<rounding>(rounded<rounding>(x * (is_number(mask, 1) ? b0 : b[i])) + (is_number(mask, 2) ? c0 : c[i]));
      } else if constexpr (arity_of(op) == 2) {
        o[i] = rounded<rounding>(binary<op, T>(x, is_number(mask, 1) ? b0 : b[i]));
      } else {
        o[i] = rounded<rounding>(unary<op, T>(x));
      }
    }
  }
}

inline float half_to_float(std::uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline std::uint16_t float_to_half(float x) { return std::bit_cast<std::uint16_t>(static_cast<_Float16>(x)); }

void halves_to_floats(float* out, const std::uint16_t* in, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i))));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
#endif
  for (; i < n; ++i) {
    out[i] = half_to_float(in[i]);
  }
}

void floats_to_halves(std::uint16_t* out, const float* in, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; ++i) {
    out[i] = float_to_half(in[i]);
  }
}

// What an element type is in memory.
template <Element element>
struct Memory;
template <typename T>
struct PlainMemory {
  using Type = T;
};
template <>
struct Memory<Element::kF32> : PlainMemory<float> {};
template <>
struct Memory<Element::kBF16> : PlainMemory<std::uint16_t> {};
template <>
struct Memory<Element::kF16> : PlainMemory<std::uint16_t> {};
template <>
struct Memory<Element::kF64> : PlainMemory<double> {};
template <>
struct Memory<Element::kI64> : PlainMemory<std::int64_t> {};
template <>
struct Memory<Element::kI32> : PlainMemory<std::int32_t> {};
template <>
struct Memory<Element::kI16> : PlainMemory<std::int16_t> {};
template <>
struct Memory<Element::kI8> : PlainMemory<std::int8_t> {};
template <>
struct Memory<Element::kU8> : PlainMemory<std::uint8_t> {};
template <>
struct Memory<Element::kBool> : PlainMemory<std::uint8_t> {};

template <Element element>
auto from_memory(typename Memory<element>::Type bits) {
  if constexpr (element == Element::kBF16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  } else if constexpr (element == Element::kF16) {
    return half_to_float(bits);
  } else if constexpr (element == Element::kBool) {
    return bits != 0 ? 1.0F : 0.0F;
  } else {
    return static_cast<LaneType<lane_of(element)>>(bits);
  }
}

// The value has been rounded to the element type already, but for bfloat16 and float16, which may still hold float32.
template <Element element, typename T>
typename Memory<element>::Type to_memory(T x) {
  if constexpr (element == Element::kBF16) {
    return static_cast<std::uint16_t>(bf16_bits(x) >> 16);
  } else if constexpr (element == Element::kF16) {
    return float_to_half(x);
  } else if constexpr (element == Element::kBool) {
    return static_cast<std::uint8_t>(x != 0.0F);
  } else {
    return static_cast<typename Memory<element>::Type>(x);
  }
}

template <Element element>
void load_kernel(void* registers, const void* memory, std::int64_t stride, std::int64_t n) {
  using Stored = typename Memory<element>::Type;
  auto* const out = static_cast<LaneType<lane_of(element)>*>(registers);
  const auto* const in = static_cast<const Stored*>(memory);
  if (stride == 1) {
    if constexpr (element == Element::kF16) {
      halves_to_floats(out, in, n);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = from_memory<element>(in[i]);
      }
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = from_memory<element>(in[i * stride]);
    }
  }
}

template <Element element>
void store_kernel(void* memory, const void* registers, std::int64_t stride, std::int64_t n) {
  using Stored = typename Memory<element>::Type;
  const auto* const in = static_cast<const LaneType<lane_of(element)>*>(registers);
  auto* const out = static_cast<Stored*>(memory);
  if (stride == 1) {
    if constexpr (element == Element::kF16) {
      floats_to_halves(out, in, n);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = to_memory<element>(in[i]);
      }
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i * stride] = to_memory<element>(in[i]);
    }
  }
}

// As C++ converts, which is what ATen does; to the lane of the element type, rounded to it.
template <Element element, typename T>
auto converted(T x) {
  using To = LaneType<lane_of(element)>;
  if constexpr (element == Element::kBool) {
    return x != T(0) ? 1.0F : 0.0F;
  } else if constexpr (element == Element::kBF16) {
    return round_bf16(static_cast<float>(x));
  } else if constexpr (element == Element::kF16) {
    return half_to_float(float_to_half(static_cast<float>(x)));
  } else if constexpr (lane_of(element) != Lane::kInteger) {
    return static_cast<To>(x);
  } else if constexpr (element == Element::kU8 && !std::is_integral_v<T>) {
    return static_cast<To>(static_cast<std::uint8_t>(static_cast<std::int64_t>(x)));
  } else {
    return static_cast<To>(static_cast<typename Memory<element>::Type>(x));
  }
}

template <Lane lane, Element element>
void convert_kernel(void* out, const void* a, const void*, const void*, std::int64_t n) {
  using From = LaneType<lane>;
  auto* const o = static_cast<LaneType<lane_of(element)>*>(out);
  const auto* const x = static_cast<const From*>(a);
  if constexpr (lane == Lane::kFloat && element == Element::kF16) {
    std::uint16_t halves[256];
    for (std::int64_t i = 0; i < n; i += 256) {
      const std::int64_t count = std::min<std::int64_t>(256, n - i);
      floats_to_halves(halves, x + i, count);
      halves_to_floats(o + i, halves, count);
    }
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      o[i] = converted<element>(x[i]);
    }
  }
}

template <typename T>
void fill_kernel(void* out, const void* a, const void*, const void*, std::int64_t n) {
  std::fill_n(static_cast<T*>(out), n, *static_cast<const T*>(a));
}

// Four accumulators of 64 bytes; GCC's vector types work on every target.
template <typename T>
struct Wide {
  typedef T Type __attribute__((vector_size(64)));
  static constexpr int kCount = 64 / sizeof(T);
};

template <typename T, Op op>
T combined(T a, T b) {
  if constexpr (op == Op::kSum) {
    return arithmetic<Op::kAdd>(a, b);
  } else {
    return binary<op == Op::kAmax ? Op::kMaximum : Op::kMinimum, T>(a, b);
  }
}

template <typename T, Op op>
void reduce_kernel(void* result, const void* registers, std::int64_t n) {
  using Vector = typename Wide<T>::Type;
  constexpr int kCount = Wide<T>::kCount;
  const T* const x = static_cast<const T*>(registers);
  T total = *static_cast<T*>(result);
  std::int64_t i = 0;
  if (n >= 4 * kCount) {
    const auto join = [x](Vector& a, std::int64_t index) {
      Vector b;
      std::memcpy(&b, x + index, sizeof(b));  // rows start anywhere
      if constexpr (op == Op::kSum) {
        a = a + b;
      } else if constexpr (op == Op::kAmax) {
        a = (a > b) | (a != a) ? a : b;
      } else {
        a = (a < b) | (a != a) ? a : b;
      }
    };
    Vector accumulators[4];
    std::memcpy(accumulators, x, sizeof(accumulators));
    auto& [p, q, r, s] = accumulators;
    for (i = 4 * kCount; i + 4 * kCount <= n; i += 4 * kCount) {
      join(p, i);
      join(q, i + kCount);
      join(r, i + 2 * kCount);
      join(s, i + 3 * kCount);
    }
    T parts[4 * kCount];
    std::memcpy(parts, accumulators, sizeof(parts));
    for (int width = 2 * kCount; width > 0; width /= 2) {
      for (int k = 0; k < width; ++k) {
        parts[k] = combined<T, op>(parts[k], parts[k + width]);
      }
    }
    total = combined<T, op>(total, parts[0]);
  }
  for (; i < n; ++i) {
    total = combined<T, op>(total, x[i]);
  }
  *static_cast<T*>(result) = total;
}

void iota_kernel(void* registers, std::int64_t first, std::int64_t step, std::int64_t n) {
  auto* const out = static_cast<std::int64_t*>(registers);
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = first + i * step;
  }
}

// `out` is not `a`.
template <bool back>
void rotate_half_kernel(void* out, const void* a, const void*, const void*, std::int64_t n) {
  auto* const o = static_cast<float*>(out);
  const auto* const x = static_cast<const float*>(a);
  const std::int64_t half = n / 2;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < half; ++i) {
    o[i] = back ? x[i + half] + 0.0F : -x[i + half];
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < half; ++i) {
    o[i + half] = back ? 0.0F - x[i] : x[i];
  }
}

template <Op op, Lane lane, Rounding rounding, int... masks>
constexpr void add_masks(KernelTable& table, std::integer_sequence<int, masks...>) {
  ((table.elements[static_cast<int>(op)][static_cast<int>(lane)][static_cast<int>(rounding)][masks] =
        &element_kernel<op, LaneType<lane>, rounding, masks>),
   ...);
}

template <Op op, Lane lane>
constexpr void add_operation(KernelTable& table) {
  if constexpr (offers<op, LaneType<lane>>()) {
    constexpr int kMasks = arity_of(op) == 3 ? 7 : arity_of(op) == 2 ? 3 : 1;
    using Masks = std::make_integer_sequence<int, kMasks>;
    add_masks<op, lane, Rounding::kNone>(table, Masks{});
    if constexpr (lane == Lane::kFloat && !is_comparison(op) && op != Op::kWhere && op != Op::kIsNan) {
      add_masks<op, lane, Rounding::kBF16>(table, Masks{});
    }
  }
}

template <int... ops>
constexpr void add_operations(KernelTable& table, std::integer_sequence<int, ops...>) {
  (add_operation<static_cast<Op>(ops), Lane::kFloat>(table), ...);
  (add_operation<static_cast<Op>(ops), Lane::kDouble>(table), ...);
  (add_operation<static_cast<Op>(ops), Lane::kInteger>(table), ...);
}

template <int... elements>
constexpr void add_memory(KernelTable& table, std::integer_sequence<int, elements...>) {
  ((table.load[elements] = &load_kernel<static_cast<Element>(elements)>), ...);
  ((table.store[elements] = &store_kernel<static_cast<Element>(elements)>), ...);
  ((table.convert[0][elements] = &convert_kernel<Lane::kFloat, static_cast<Element>(elements)>), ...);
  ((table.convert[1][elements] = &convert_kernel<Lane::kDouble, static_cast<Element>(elements)>), ...);
  ((table.convert[2][elements] = &convert_kernel<Lane::kInteger, static_cast<Element>(elements)>), ...);
}

constexpr KernelTable make_kernel_table(const char* name) {
  KernelTable table;
  table.name = name;
  add_operations(table, std::make_integer_sequence<int, kOpCount>{});
  add_memory(table, std::make_integer_sequence<int, kElementCount>{});
  table.fill[0] = &fill_kernel<float>;
  table.fill[1] = &fill_kernel<double>;
  table.fill[2] = &fill_kernel<std::int64_t>;
  table.sum[0] = &reduce_kernel<float, Op::kSum>;
  table.sum[1] = &reduce_kernel<double, Op::kSum>;
  table.sum[2] = &reduce_kernel<std::int64_t, Op::kSum>;
  table.amax[0] = &reduce_kernel<float, Op::kAmax>;
  table.amax[1] = &reduce_kernel<double, Op::kAmax>;
  table.amax[2] = &reduce_kernel<std::int64_t, Op::kAmax>;
  table.amin[0] = &reduce_kernel<float, Op::kAmin>;
  table.amin[1] = &reduce_kernel<double, Op::kAmin>;
  table.amin[2] = &reduce_kernel<std::int64_t, Op::kAmin>;
  table.iota = &iota_kernel;
  table.rotate_half = &rotate_half_kernel<false>;
  table.rotate_half_back = &rotate_half_kernel<true>;
  return table;
}

}  // namespace
}  // namespace neuron::kernels::vector
