// From sums to C: scale, addend, activation, gate, residual, rounding.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/isa/vector_level.h"
#include "kernels/isa/vector_math.h"
#include "kernels/matmul/matmul.h"

namespace neuron::kernels {
namespace {

constexpr std::int64_t size_of(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

// `count` (at most kLanes) numbers at a distance of `stride` elements; the other lanes are zero.
[[gnu::always_inline]] inline Floats read_numbers(const char* from, DataType type, std::int64_t stride, std::int64_t count) {
  if (count == kLanes && stride == 1) [[likely]] {
    switch (type) {
      case DataType::kFloat32:
        return load<Floats>(from);
      case DataType::kBFloat16:
        return widen_bf16(load<Halves>(from));
      case DataType::kFloat16:
        return widen_f16(load<Halves>(from));
    }
  }
  if (type == DataType::kFloat32) {
    float numbers[kLanes] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(&numbers[i], from + i * stride * 4, 4);
    }
    return load<Floats>(numbers);
  }
  std::uint16_t numbers[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(&numbers[i], from + i * stride * 2, 2);
  }
  return type == DataType::kBFloat16 ? widen_bf16(load<Halves>(numbers)) : widen_f16(load<Halves>(numbers));
}

[[gnu::always_inline]] inline void write_numbers(char* to, DataType type, std::int64_t stride, std::int64_t count, Floats value) {
  const auto write = [&](auto vector, std::int64_t size) __attribute__((always_inline)) {
    if (count == kLanes && stride == 1) [[likely]] {
      store(to, vector);
      return;
    }
    char bytes[sizeof vector];
    store(bytes, vector);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * stride * size, bytes + i * size, size);
    }
  };
  switch (type) {
    case DataType::kFloat32:
      write(value, 4);
      break;
    case DataType::kBFloat16:
      write(narrow_bf16(value), 2);
      break;
    case DataType::kFloat16:
      write(narrow_f16(value), 2);
      break;
  }
}

inline Floats activate(Activation activation, Floats x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? Floats{} : x;  // NaN stays
    case Activation::kSilu:
      return silu(x);
    case Activation::kGeluErf:
      return gelu_erf(x);
    case Activation::kGeluTanh:
      return gelu_tanh(x);
  }
  return x;
}

// The rows and columns of one batch entry of C that are finished together; sums are [rows, columns] with `stride` between rows.
class Finisher {
 public:
  explicit Finisher(const Matmul& problem)
      : p_(problem),
        plain_(problem.epilogue.scale == 1 && problem.epilogue.addend.view.data == nullptr &&
               problem.epilogue.residual.view.data == nullptr && problem.epilogue.activation == Activation::kNone &&
               problem.gate.data == nullptr) {}

  void finish(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, const float* sums, const float* gates,
              std::int64_t stride) const {
    if (plain_) {
      finish_with(row, rows, column, columns, sums, stride,
                  [](const float* from, std::int64_t, std::int64_t, std::int64_t) { return load<Floats>(from); });
      return;
    }
    const auto value_at = [&](const float* from, std::int64_t i, std::int64_t j, std::int64_t count) {
      auto value = load<Floats>(from) * p_.epilogue.scale;
      if (gates != nullptr) {
        return activate(p_.epilogue.activation, value) * (load<Floats>(gates + (from - sums)) * p_.epilogue.scale);
      }
      value = add(p_.epilogue.addend, i, j, count, value);
      value = activate(p_.epilogue.activation, value);
      return add(p_.epilogue.residual, i, j, count, value);
    };
    finish_with(row, rows, column, columns, sums, stride, value_at);
  }

 private:
  template <class ValueAt>
  void finish_with(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, const float* sums, std::int64_t stride,
                   const ValueAt& value_at) const {
    switch (p_.c_type) {
      case DataType::kFloat32:
        return finish_as<DataType::kFloat32>(row, rows, column, columns, sums, stride, value_at);
      case DataType::kBFloat16:
        return finish_as<DataType::kBFloat16>(row, rows, column, columns, sums, stride, value_at);
      case DataType::kFloat16:
        return finish_as<DataType::kFloat16>(row, rows, column, columns, sums, stride, value_at);
    }
  }

  // Sums are padded to whole vectors.
  template <DataType kType, class ValueAt>
  void finish_as(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, const float* sums, std::int64_t stride,
                 const ValueAt& value_at) const {
    const auto whole = p_.c_column_stride == 1 ? columns / kLanes * kLanes : 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      auto* to = static_cast<char*>(p_.c) + ((row + i) * p_.c_row_stride + column * p_.c_column_stride) * size_of(kType);
      const auto* from = sums + i * stride;
      for (std::int64_t j = 0; j < whole; j += kLanes) {
        write_numbers(to + j * size_of(kType), kType, 1, kLanes, value_at(from + j, row + i, column + j, kLanes));
      }
      for (std::int64_t j = whole; j < columns; j += kLanes) {
        const auto count = std::min<std::int64_t>(kLanes, columns - j);
        write_numbers(to + j * p_.c_column_stride * size_of(kType), kType, p_.c_column_stride, count,
                      value_at(from + j, row + i, column + j, count));
      }
    }
  }

  [[gnu::always_inline]] static Floats add(const Addend& addend, std::int64_t row, std::int64_t column, std::int64_t count, Floats value) {
    if (addend.view.data == nullptr) {
      return value;
    }
    const auto* from = static_cast<const char*>(addend.view.data) +
                       (row * addend.view.row_stride + column * addend.view.column_stride) * size_of(addend.type);
    return multiply_add(value, broadcast(addend.scale), read_numbers(from, addend.type, addend.view.column_stride, count));
  }

  const Matmul& p_;
  const bool plain_;  // sums are what is written
};

}  // namespace
}  // namespace neuron::kernels
