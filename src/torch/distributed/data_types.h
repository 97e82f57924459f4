// How tensors and c10d's reductions are told to the transport.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "collectives/types.h"

namespace neuron::distributed {

// Raises TypeError for dtypes that no collective moves (quantized ones, packed bits).
collectives::DataType to_data_type(c10::ScalarType type);

// Raises ValueError for reductions that have no meaning for the dtype (minimum of complex numbers, bit operations on floating point
// numbers).
collectives::Reduction to_reduction(const c10d::ReduceOp& op, c10::ScalarType type);

// For messages: "float32 [2, 3]".
std::string describe(const at::Tensor& tensor);
std::string describe(at::TensorList tensors);

}  // namespace neuron::distributed
