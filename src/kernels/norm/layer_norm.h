// Layer norm of rows of floats.
//
// Inputs and outputs of one float dtype, everything between is float and rounded once. Rows are contiguous, distances between them in
// elements. A row is computed by one thread, so results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/isa/isa.h"
#include "kernels/threads.h"

namespace neuron::kernels {

// output = (x - mean) / sqrt(variance + epsilon) * weight + bias. The output may be the input itself, but not overlap it otherwise.
struct LayerNorm {
  DataType type = DataType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t size = 0;
  const void* input = nullptr;
  std::int64_t input_row = 0;
  DataType parameter_type = DataType::kFloat32;
  const void* weight = nullptr;  // or none
  const void* bias = nullptr;    // or none
  float epsilon = 1e-5F;
  void* output = nullptr;
  std::int64_t output_row = 0;
  DataType statistics_type = DataType::kFloat32;
  void* mean = nullptr;     // [rows] if wanted
  void* inverse = nullptr;  // [rows] 1 / sqrt(variance + epsilon) if wanted
};
void layer_norm(const LayerNorm& call, Threads& threads);
void layer_norm(const LayerNorm& call, Threads& threads, Isa isa);

}  // namespace neuron::kernels
