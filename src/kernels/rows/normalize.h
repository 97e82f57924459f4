// Layer and RMS norms of rows.
#pragma once

#include "kernels/rows/reduce.h"
#include "kernels/rows/rows.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

template <class T, class P>
class NormRows {
 public:
  explicit NormRows(const Norm& call) : call_(call) {}

  void run(std::int64_t begin, std::int64_t end) const {
    // x as floats: read once from memory, then from the first caches.
    auto* x = static_cast<float*>(scratch(Scratch::kRows, (call_.size + kLanes) * sizeof(float)));
    const auto size = static_cast<float>(call_.size);
    for (auto i = begin; i < end; ++i) {
      const float total = read_row(i, x);
      const float mean = call_.kind == Norm::Kind::kLayer ? total / size : 0;
      const float squares = sum_over(call_.size, [&](std::int64_t j, std::int64_t n) {
        const Floats distance = j + kLanes <= call_.size ? read(x + j) - mean : select_first(n, read(x + j) - mean);
        return distance * distance;
      });
      const float inverse = 1 / std::sqrt(squares / size + call_.epsilon);
      write_row(i, x, mean, inverse);
      if (call_.mean != nullptr) call_.mean[i] = mean;
      if (call_.inverse != nullptr) call_.inverse[i] = inverse;
    }
  }

 private:
  // Writes x of row i and returns its sum.
  float read_row(std::int64_t i, float* x) const {
    const auto* input = static_cast<const T*>(call_.input) + i * call_.input_row;
    if (call_.residual == nullptr) {
      return sum_over(call_.size, [&](std::int64_t j, std::int64_t n) {
        const Floats value = read(input + j, n);
        write(x + j, value);
        return value;
      });
    }
    const auto* residual = static_cast<const T*>(call_.residual) + i * call_.residual_row;
    auto* sum = call_.sum == nullptr ? nullptr : static_cast<T*>(call_.sum) + i * call_.residual_row;
    return sum_over(call_.size, [&](std::int64_t j, std::int64_t n) {
      const Floats value = rounded_to<T>(read(input + j, n) + read(residual + j, n));
      write(x + j, value);
      if (sum != nullptr) write(sum + j, value, n);
      return value;
    });
  }

  void write_row(std::int64_t i, const float* x, float mean, float inverse) const {
    const auto* weight = static_cast<const P*>(call_.weight);
    const auto* bias = static_cast<const P*>(call_.bias);
    auto* output = static_cast<T*>(call_.output) + i * call_.output_row;
    for (std::int64_t j = 0; j < call_.size; j += kLanes) {
      const auto n = call_.size - j;
      Floats value = (read(x + j) - mean) * inverse;
      if (call_.round_before_weight) value = rounded_to<T>(value);
      if (weight != nullptr) value *= read(weight + j, n);
      if (bias != nullptr) value += read(bias + j, n);
      write(output + j, value, n);
    }
  }

  const Norm& call_;
};

inline void normalize_rows(const Norm& call, std::int64_t begin, std::int64_t end) {
  with_type(call.type, [&](auto element) {
    with_type(call.parameter_type, [&](auto parameter) { NormRows<decltype(element), decltype(parameter)>(call).run(begin, end); });
  });
}

}  // namespace
}  // namespace neuron::kernels
