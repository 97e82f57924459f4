// Sums and maxima over a row in a fixed order, and the choice of a template by dtype.
#pragma once

#include "kernels/isa/vector_math.h"
#include "kernels/simd/simd.h"

namespace neuron::kernels {
namespace {

// Calls f with a value of the type that the dtype stands for.
template <class Function>
inline void with_type(DataType type, Function&& f) {
  switch (type) {
    case DataType::kFloat32:
      return f(float{});
    case DataType::kBFloat16:
      return f(BFloat16{});
    case DataType::kFloat16:
      return f(Half{});
  }
}

// The first n lanes of x (all if there are no more), zeros behind them.
inline Floats select_first(std::int64_t n, Floats x) {
  if (n >= kLanes) {
    return x;
  }
  float lanes[kLanes];
  store(lanes, x);
  std::fill(lanes + n, lanes + kLanes, 0.0F);
  return load<Floats>(lanes);
}

// The sum of f(j, size - j) over vectors of a row, in four running sums. Lanes behind the row must be 0.
template <class Function>
inline float sum_over(std::int64_t size, Function&& f) {
  Floats sums[4] = {};
  std::int64_t j = 0;
  for (; j + 4 * kLanes <= size; j += 4 * kLanes) {
    unrolled<4>([&](auto i) __attribute__((always_inline)) { sums[i] += f(j + i * kLanes, size - j - i * kLanes); });
  }
  for (; j < size; j += kLanes) {
    sums[0] += f(j, size - j);
  }
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// The largest of a row; NaN is passed over.
template <class T>
inline float max_of_row(const T* row, std::int64_t size) {
  Floats maxima[4];
  unrolled<4>([&](auto i) __attribute__((always_inline)) { maxima[i] = broadcast(-kInfinity); });
  std::int64_t j = 0;
  for (; j + 4 * kLanes <= size; j += 4 * kLanes) {
    unrolled<4>([&](auto i) __attribute__((always_inline)) { maxima[i] = larger(read(row + j + i * kLanes), maxima[i]); });
  }
  for (; j + kLanes <= size; j += kLanes) {
    maxima[0] = larger(read(row + j), maxima[0]);
  }
  float maximum = max_of(larger(larger(maxima[0], maxima[1]), larger(maxima[2], maxima[3])));
  for (; j < size; ++j) {
    const float x = read_one(row + j);
    maximum = x > maximum ? x : maximum;
  }
  return maximum;
}

}  // namespace
}  // namespace neuron::kernels
