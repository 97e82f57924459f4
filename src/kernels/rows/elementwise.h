// Rotary embedding and gated activations of rows.
#pragma once

#include "kernels/rows/reduce.h"
#include "kernels/rows/rows.h"

namespace neuron::kernels {
namespace {

// Lanes exchanged in pairs.
inline Floats swap_pairs(Floats x) {
  return [&]<int... kLane>(std::integer_sequence<int, kLane...>) __attribute__((always_inline)) {
    return __builtin_shufflevector(x, x, (kLane ^ 1)...);
  }(std::make_integer_sequence<int, kLanes>{});
}
// -1, 1, -1, 1, ...
inline Floats pair_signs() {
  Floats signs;
  for (int lane = 0; lane < kLanes; ++lane) {
    signs[lane] = lane % 2 == 0 ? -1.0F : 1.0F;
  }
  return signs;
}

template <class T>
inline void rotate_pairs(const T* from, T* to, const T* cosine, const T* sine, std::int64_t size) {
  const Floats signs = pair_signs();
  for (std::int64_t j = 0; j < size; j += kLanes) {
    const auto n = size - j;
    const Floats x = read(from + j, n);
    write(to + j, x * read(cosine + j, n) + swap_pairs(x) * signs * read(sine + j, n), n);
  }
}

template <class T>
inline void rotate_halves(const T* from, T* to, const T* cosine, const T* sine, std::int64_t size) {
  const auto half = size / 2;
  for (std::int64_t j = 0; j < half; j += kLanes) {
    const auto n = half - j;
    const Floats x = read(from + j, n);
    const Floats y = read(from + half + j, n);
    const Floats first = x * read(cosine + j, n) - y * read(sine + j, n);
    const Floats second = y * read(cosine + half + j, n) + x * read(sine + half + j, n);
    write(to + j, first, n);
    write(to + half + j, second, n);
  }
}

inline void rope_rows(const Rope& call, std::int64_t begin, std::int64_t end) {
  with_type(call.type, [&](auto element) {
    using T = decltype(element);
    for (auto i = begin; i < end; ++i) {
      const auto row = i % call.length;
      const auto head = i / call.length % call.heads;
      const auto batch = i / call.length / call.heads;
      const auto* from = static_cast<const T*>(call.input) + batch * call.input_batch + head * call.input_head + row * call.input_row;
      auto* to = static_cast<T*>(call.output) + batch * call.output_batch + head * call.output_head + row * call.output_row;
      const auto angle = batch * call.angle_batch + row * call.angle_row;
      const auto* cosine = static_cast<const T*>(call.cosine) + angle;
      const auto* sine = static_cast<const T*>(call.sine) + angle;
      if (call.interleaved) {
        rotate_pairs(from, to, cosine, sine, call.size);
      } else {
        rotate_halves(from, to, cosine, sine, call.size);
      }
    }
  });
}

template <class T, class Activate>
inline void gated_rows_of(const Gated& call, std::int64_t begin, std::int64_t end, Activate activate) {
  for (auto i = begin; i < end; ++i) {
    const auto* gate = static_cast<const T*>(call.gate) + i * call.gate_row;
    const auto* up = static_cast<const T*>(call.up) + i * call.up_row;
    auto* to = static_cast<T*>(call.output) + i * call.output_row;
    for (std::int64_t j = 0; j < call.size; j += kLanes) {
      const auto n = call.size - j;
      Floats active = activate(read(gate + j, n));
      if (call.round_activation) active = rounded_to<T>(active);
      write(to + j, active * read(up + j, n), n);
    }
  }
}

inline void gated_rows(const Gated& call, std::int64_t begin, std::int64_t end) {
  with_type(call.type, [&](auto element) {
    using T = decltype(element);
    switch (call.activation) {
      case Activation::kNone:
        return gated_rows_of<T>(call, begin, end, [](Floats x) { return x; });
      case Activation::kRelu:
        return gated_rows_of<T>(call, begin, end, [](Floats x) { return select(x < 0, Floats{}, x); });
      case Activation::kSilu:
        return gated_rows_of<T>(call, begin, end, [](Floats x) { return silu(x); });
      case Activation::kGeluErf:
        return gated_rows_of<T>(call, begin, end, [](Floats x) { return gelu_erf(x); });
      case Activation::kGeluTanh:
        return gated_rows_of<T>(call, begin, end, [](Floats x) { return gelu_tanh(x); });
    }
  });
}

}  // namespace
}  // namespace neuron::kernels
