// Operators on rows of floats: norms, softmax, rotary embedding, gated activations, cross-entropy, gathering of rows.
//
// Inputs and outputs of one float dtype unless said otherwise; everything between is float, rounded once unless said otherwise. Rows are
// contiguous, distances between them in elements. A row is computed by one thread, so results do not depend on the number of threads.
// Output may be input itself, but not overlap it otherwise. Exponentials are within 2 ulp.
#pragma once

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/isa/isa.h"
#include "kernels/matmul/matmul.h"
#include "kernels/threads.h"

namespace neuron::kernels {

// output = (x - mean) / sqrt(variance + epsilon) * weight + bias, or the same without mean (RMS norm); x = input + residual.
struct Norm {
  enum class Kind : std::uint8_t { kLayer, kRms };
  Kind kind = Kind::kLayer;
  DataType type = DataType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t size = 0;
  const void* input = nullptr;
  std::int64_t input_row = 0;
  // If set: x is rounded to `type` and written to `sum`, whose rows lie as the residual's.
  const void* residual = nullptr;
  std::int64_t residual_row = 0;
  void* sum = nullptr;
  DataType parameter_type = DataType::kFloat32;
  const void* weight = nullptr;  // or none
  const void* bias = nullptr;    // or none
  float epsilon = 1e-5F;
  // Hugging Face's order in RMS norms: rounded to `type` before the weight.
  bool round_before_weight = false;
  void* output = nullptr;
  std::int64_t output_row = 0;
  float* mean = nullptr;     // [rows] if wanted
  float* inverse = nullptr;  // [rows] 1 / sqrt(variance + epsilon) if wanted
};
void normalize(const Norm& call, Threads& threads);
void normalize(const Norm& call, Threads& threads, Isa isa);

// e^(x - max) / sum of these, or the logarithm of it. A row of -inf alone, or with NaN, gives NaN, as in PyTorch.
struct Softmax {
  DataType type = DataType::kFloat32;
  bool logarithm = false;
  std::int64_t rows = 0;
  std::int64_t size = 0;
  const void* input = nullptr;
  std::int64_t input_row = 0;
  void* output = nullptr;
  std::int64_t output_row = 0;
};
void softmax(const Softmax& call, Threads& threads);
void softmax(const Softmax& call, Threads& threads, Isa isa);

// Rotary position embedding of q or k: output[j] = x[j] * cosine[j] + y[j] * sine[j], where y is (-x[j + size / 2], x[j - size / 2]) in the
// half-split layout and (-x[j + 1], x[j - 1]) in the interleaved one. `size` (even) is what is rotated; what follows is not touched.
struct Rope {
  DataType type = DataType::kFloat32;
  bool interleaved = false;
  std::int64_t batches = 0;
  std::int64_t heads = 0;
  std::int64_t length = 0;
  std::int64_t size = 0;
  const void* input = nullptr;  // [batches, heads, length, size]
  std::int64_t input_batch = 0, input_head = 0, input_row = 0;
  void* output = nullptr;
  std::int64_t output_batch = 0, output_head = 0, output_row = 0;
  const void* cosine = nullptr;  // [batches, length, size] in `type`
  const void* sine = nullptr;
  std::int64_t angle_batch = 0, angle_row = 0;
};
void rope(const Rope& call, Threads& threads);
void rope(const Rope& call, Threads& threads, Isa isa);

// output = activation(gate) * up. Errors as in isa/vector_math.h.
struct Gated {
  DataType type = DataType::kFloat32;
  Activation activation = Activation::kSilu;
  bool round_activation = false;  // Hugging Face's order: the activation is rounded to `type` first
  std::int64_t rows = 0;
  std::int64_t size = 0;
  const void* gate = nullptr;
  std::int64_t gate_row = 0;
  const void* up = nullptr;
  std::int64_t up_row = 0;
  void* output = nullptr;
  std::int64_t output_row = 0;
};
void gated(const Gated& call, Threads& threads);
void gated(const Gated& call, Threads& threads, Isa isa);

// loss[i] = logsumexp[i] - logits[i][target[i]], 0 where the target is `ignored`. Throws std::out_of_range for any other target outside of
// [0, size).
struct CrossEntropy {
  DataType type = DataType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t size = 0;
  const void* logits = nullptr;
  std::int64_t logits_row = 0;
  const std::int64_t* target = nullptr;
  std::int64_t ignored = -100;
  float* loss = nullptr;
  float* logsumexp = nullptr;  // if wanted
};
void cross_entropy(const CrossEntropy& call, Threads& threads);
void cross_entropy(const CrossEntropy& call, Threads& threads, Isa isa);

// output row i = table row index[i], rows of `row_bytes` bytes. Throws std::out_of_range for an index outside of [0, table_rows).
struct Gather {
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  const void* table = nullptr;
  std::int64_t table_rows = 0;
  const std::int64_t* index = nullptr;
  void* output = nullptr;
};
void gather(const Gather& call, Threads& threads);

}  // namespace neuron::kernels
