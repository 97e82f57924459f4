// What each operation does to one element, per lane. ATen's formulas, in its order of operations, so that results round alike.
#pragma once

#include <type_traits>

#include "kernels/vector/region.h"
#include "kernels/vector/vector_math.h"

namespace neuron::kernels::vector {
namespace {

template <typename T>
inline constexpr bool kIsF32 = std::is_same_v<T, float>;

template <typename T>
T exp_of(T x) {
  if constexpr (kIsF32<T>) {
    return exp_f32(x);
  } else {
    return std::exp(x);
  }
}
template <typename T>
T tanh_of(T x) {
  if constexpr (kIsF32<T>) {
    return tanh_f32(x);
  } else {
    return std::tanh(x);
  }
}
template <typename T>
T erf_of(T x) {
  if constexpr (kIsF32<T>) {
    return erf_f32(x);
  } else {
    return std::erf(x);
  }
}
template <typename T>
T sigmoid_of(T x) {
  return T(1) / (T(1) + exp_of(T(0) - x));
}

constexpr double kRootHalf = 0.70710678118654752440;
constexpr double kTanhScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kTanhCube = 0.044715;

// Operations that exist for float lanes and double lanes.
template <Op op, typename T>
T float_unary(T x) {
  if constexpr (op == Op::kExp) return exp_of(x);
  if constexpr (op == Op::kLog) {
    if constexpr (kIsF32<T>) {
      return log_f32(x);
    } else {
      return std::log(x);
    }
  }
  if constexpr (op == Op::kSqrt) return std::sqrt(x);
  if constexpr (op == Op::kRsqrt) return T(1) / std::sqrt(x);
  if constexpr (op == Op::kReciprocal) return T(1) / x;
  if constexpr (op == Op::kTanh) return tanh_of(x);
  if constexpr (op == Op::kSigmoid) return sigmoid_of(x);
  if constexpr (op == Op::kSilu) return x / (T(1) + exp_of(T(0) - x));
  if constexpr (op == Op::kGelu) return x * T(0.5) * (T(1) + erf_of(x * T(kRootHalf)));
  if constexpr (op == Op::kGeluTanh) {
    const T inner = T(kTanhScale) * (x + T(kTanhCube) * (x * x * x));
    return T(0.5) * x * (T(1) + tanh_of(inner));
  }
  if constexpr (op == Op::kErf) return erf_of(x);
  if constexpr (op == Op::kFloor) return std::floor(x);
  if constexpr (op == Op::kCeil) return std::ceil(x);
  if constexpr (op == Op::kRound) return std::nearbyint(x);
  if constexpr (op == Op::kTruncate) return std::trunc(x);
  if constexpr (op == Op::kExp2) return std::exp2(x);
  if constexpr (op == Op::kLog2) return std::log2(x);
  if constexpr (op == Op::kLog1p) return std::log1p(x);
  if constexpr (op == Op::kExpm1) return std::expm1(x);
}

// Operations of all lanes.
template <Op op, typename T>
T unary(T x) {
  if constexpr (op == Op::kNegate) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
    } else {
      return -x;
    }
  } else if constexpr (op == Op::kAbs) {
    if constexpr (std::is_integral_v<T>) {
      return x < 0 ? unary<Op::kNegate>(x) : x;
    } else {
      return std::fabs(x);
    }
  } else if constexpr (op == Op::kRelu) {
    return x < T(0) ? T(0) : x;  // NaN stays
  } else if constexpr (op == Op::kSign) {
    return static_cast<T>(static_cast<T>(x > T(0)) - static_cast<T>(x < T(0)));
  } else if constexpr (op == Op::kNot) {
    return static_cast<T>(x == T(0));
  } else if constexpr (op == Op::kSquare) {
    return x * x;
  } else if constexpr (op == Op::kCube) {
    return x * x * x;
  } else {
    return float_unary<op>(x);
  }
}

template <typename T>
T bits_of(Op op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return op == Op::kAnd ? (a & b) : op == Op::kOr ? (a | b) : (a ^ b);
  } else {
    const bool x = a != T(0);
    const bool y = b != T(0);
    return static_cast<T>(op == Op::kAnd ? (x & y) : op == Op::kOr ? (x | y) : (x ^ y));
  }
}

// Wraps where signed overflow would be undefined.
template <Op op, typename T>
T arithmetic(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const U x = static_cast<U>(a);
    const U y = static_cast<U>(b);
    return static_cast<T>(op == Op::kAdd ? x + y : op == Op::kSubtract ? x - y : x * y);
  } else {
    return op == Op::kAdd ? a + b : op == Op::kSubtract ? a - b : a * b;
  }
}

template <typename T>
T gelu_backward(T dy, T x) {
  constexpr T kDensity = T(0.39894228040143267794);  // 1 / sqrt(2 pi)
  const T cdf = T(0.5) * (T(1) + erf_of(x * T(kRootHalf)));
  const T pdf = kDensity * exp_of(x * x * T(-0.5));
  return dy * (cdf + x * pdf);
}

template <typename T>
T gelu_tanh_backward(T dy, T x) {
  const T x2 = x * x;
  const T inner = T(kTanhScale) * (x + T(kTanhCube) * (x2 * x));
  const T t = tanh_of(inner);
  const T left = T(0.5) * x;
  const T right = T(1) + t;
  const T inner_gradient = T(kTanhScale) * (T(1) + T(3) * T(kTanhCube) * x2);
  return dy * (T(0.5) * right + left * (T(1) - t * t) * inner_gradient);
}

template <Op op, typename T>
T binary(T a, T b) {
  if constexpr (op == Op::kAdd || op == Op::kSubtract || op == Op::kMultiply) return arithmetic<op>(a, b);
  if constexpr (op == Op::kMaximum) return a > b || a != a ? a : b;
  if constexpr (op == Op::kMinimum) return a < b || a != a ? a : b;
  if constexpr (op == Op::kAnd || op == Op::kOr || op == Op::kXor) return bits_of(op, a, b);
  if constexpr (!std::is_integral_v<T>) {
    if constexpr (op == Op::kDivide) return a / b;
    if constexpr (op == Op::kPow) return static_cast<T>(std::pow(a, b));
    if constexpr (op == Op::kSiluBackward) {
      const T s = sigmoid_of(b);
      return a * s * (T(1) + b * (T(1) - s));
    }
    if constexpr (op == Op::kGeluBackward) return gelu_backward(a, b);
    if constexpr (op == Op::kGeluTanhBackward) return gelu_tanh_backward(a, b);
    if constexpr (op == Op::kTanhBackward) return a * (T(1) - b * b);
    if constexpr (op == Op::kSigmoidBackward) return a * (T(1) - b) * b;
  }
}

template <Op op, typename T>
float compare(T a, T b) {
  bool result = false;
  if constexpr (op == Op::kEqual) result = a == b;
  if constexpr (op == Op::kNotEqual) result = a != b;
  if constexpr (op == Op::kLess) result = a < b;
  if constexpr (op == Op::kLessEqual) result = a <= b;
  if constexpr (op == Op::kGreater) result = a > b;
  if constexpr (op == Op::kGreaterEqual) result = a >= b;
  return result ? 1.0F : 0.0F;
}

template <Op op, typename T>
constexpr bool offers() {
  if constexpr (is_source(op) || is_reduction(op) || is_rotation(op) || op == Op::kCopy) {
    return false;
  } else if constexpr (std::is_integral_v<T>) {
    return op == Op::kNegate || op == Op::kAbs || op == Op::kSign || op == Op::kSquare || op == Op::kCube || op == Op::kRelu ||
           op == Op::kNot || (op >= Op::kAdd && op <= Op::kXor && op != Op::kDivide && op != Op::kPow) || op == Op::kWhere;
  } else {
    return kIsF32<T> || op != Op::kMultiplyAdd;
  }
}

}  // namespace
}  // namespace neuron::kernels::vector
