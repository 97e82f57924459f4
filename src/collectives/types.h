// What collectives move and how they combine it: element types, reductions, and buffers as plain memory.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace neuron::collectives {

enum class DataType : std::uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kHalf,
  kBFloat16,
  kFloat,
  kDouble,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kComplexHalf,
  kComplexFloat,
  kComplexDouble,
};

enum class ReduceOp : std::uint8_t { kSum, kAverage, kProduct, kMinimum, kMaximum, kBitAnd, kBitOr, kBitXor, kPreMultipliedSum };

[[nodiscard]] std::size_t element_size(DataType type) noexcept;
[[nodiscard]] std::string_view name(DataType type) noexcept;
[[nodiscard]] std::string_view name(ReduceOp op) noexcept;
// Whether the pair has a meaning (no minimum of complex numbers, no bit operations on floating point numbers, ...).
[[nodiscard]] bool reducible(DataType type, ReduceOp op) noexcept;

// A reduction; `factor` scales each rank's input of kPreMultipliedSum.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;
};

// `count` contiguous elements. A null pointer is allowed when count is 0.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
};
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
};

}  // namespace neuron::collectives
