// The float dtypes of tensors as stored.
#pragma once

#include <cstdint>

#include "kernels/pointwise/pointwise.h"

namespace neuron::kernels {

enum class DataType : std::uint8_t { kFloat32, kBFloat16, kFloat16 };

// An IEEE binary16 as stored.
struct Half {
  std::uint16_t bits;
};

}  // namespace neuron::kernels
