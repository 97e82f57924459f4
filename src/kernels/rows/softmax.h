// Softmax, log-softmax and cross-entropy of rows.
#pragma once

#include "kernels/rows/reduce.h"
#include "kernels/rows/rows.h"
#include "kernels/scratch.h"

namespace neuron::kernels {
namespace {

// The sum of e^(x - maximum) over a row; keeps the terms in `terms` unless it is null.
template <class T>
inline float sum_of_exponentials(const T* row, std::int64_t size, float maximum, float* terms) {
  return sum_over(size, [&](std::int64_t j, std::int64_t n) __attribute__((always_inline)) {
    const Floats term = exp(read(row + j, n) - maximum);
    if (terms != nullptr) write(terms + j, term, n);
    return select_first(n, term);
  });
}

template <class T>
void softmax_rows_of(const Softmax& call, std::int64_t begin, std::int64_t end) {
  // Floats keep their terms in the output.
  auto* memory =
      std::is_same_v<T, float> || call.logarithm ? nullptr : static_cast<float*>(scratch(Scratch::kRows, call.size * sizeof(float)));
  for (auto i = begin; i < end; ++i) {
    const auto* from = static_cast<const T*>(call.input) + i * call.input_row;
    auto* to = static_cast<T*>(call.output) + i * call.output_row;
    const float maximum = max_of_row(from, call.size);
    if (call.logarithm) {
      const float logarithm = std::log(sum_of_exponentials(from, call.size, maximum, nullptr));
      for (std::int64_t j = 0; j < call.size; j += kLanes) {
        write(to + j, read(from + j, call.size - j) - maximum - logarithm, call.size - j);
      }
    } else {
      auto* terms = memory != nullptr ? memory : reinterpret_cast<float*>(to);
      const float scale = 1 / sum_of_exponentials(from, call.size, maximum, terms);
      for (std::int64_t j = 0; j < call.size; j += kLanes) {
        write(to + j, read(terms + j, call.size - j) * scale, call.size - j);
      }
    }
  }
}

inline void softmax_rows(const Softmax& call, std::int64_t begin, std::int64_t end) {
  with_type(call.type, [&](auto element) { softmax_rows_of<decltype(element)>(call, begin, end); });
}

inline void cross_entropy_rows(const CrossEntropy& call, std::int64_t begin, std::int64_t end) {
  with_type(call.type, [&](auto element) {
    using T = decltype(element);
    for (auto i = begin; i < end; ++i) {
      const auto* row = static_cast<const T*>(call.logits) + i * call.logits_row;
      const float maximum = max_of_row(row, call.size);
      const float logsumexp = maximum + std::log(sum_of_exponentials(row, call.size, maximum, nullptr));
      call.loss[i] = call.target[i] == call.ignored ? 0 : logsumexp - read_one(row + call.target[i]);
      if (call.logsumexp != nullptr) call.logsumexp[i] = logsumexp;
    }
  });
}

}  // namespace
}  // namespace neuron::kernels
