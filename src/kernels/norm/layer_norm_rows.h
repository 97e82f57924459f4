// Layer norm of rows on vectors: each row is read once from memory, then from the first caches.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/isa/vector_math.h"
#include "kernels/norm/layer_norm.h"
#include "kernels/scratch.h"
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

// array[i] = value, rounded to the dtype; nothing if there is no array.
inline void put(DataType type, void* array, std::int64_t i, float value) {
  if (array != nullptr) {
    with_type(type, [&](auto element) { write(static_cast<decltype(element)*>(array) + i, broadcast(value), 1); });
  }
}

template <class T, class P>
void layer_norm_rows_of(const LayerNorm& call, std::int64_t begin, std::int64_t end) {
  auto* x = static_cast<float*>(scratch(Scratch::kRows, (call.size + kLanes) * sizeof(float)));
  const auto size = static_cast<float>(call.size);
  const auto* weight = static_cast<const P*>(call.weight);
  const auto* bias = static_cast<const P*>(call.bias);
  for (auto i = begin; i < end; ++i) {
    const auto* input = static_cast<const T*>(call.input) + i * call.input_row;
    auto* output = static_cast<T*>(call.output) + i * call.output_row;
    const float mean = sum_over(call.size,
                                [&](std::int64_t j, std::int64_t n) {
                                  const Floats value = read(input + j, n);
                                  write(x + j, value);
                                  return value;
                                }) /
                       size;
    const float squares = sum_over(call.size, [&](std::int64_t j, std::int64_t n) {
      const Floats distance = select_first(n, read(x + j) - mean);
      return distance * distance;
    });
    const float inverse = 1 / std::sqrt(squares / size + call.epsilon);
    for (std::int64_t j = 0; j < call.size; j += kLanes) {
      const auto n = call.size - j;
      Floats value = (read(x + j) - mean) * inverse;
      if (weight != nullptr) value *= read(weight + j, n);
      if (bias != nullptr) value += read(bias + j, n);
      write(output + j, value, n);
    }
    put(call.statistics_type, call.mean, i, mean);
    put(call.statistics_type, call.inverse, i, inverse);
  }
}

inline void layer_norm_rows(const LayerNorm& call, std::int64_t begin, std::int64_t end) {
  with_type(call.type, [&](auto element) {
    with_type(call.parameter_type, [&](auto parameter) { layer_norm_rows_of<decltype(element), decltype(parameter)>(call, begin, end); });
  });
}

}  // namespace
}  // namespace neuron::kernels
