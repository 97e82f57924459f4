// C[M, N] = finish(A[M, K] * B[K, N]): matrix products of float, bfloat16 and half matrices, accumulated in float.
//
// Sums run over k in an order that depends on the sizes and strides, never on the number of threads. Memory is touched by the members of
// the given team only; scratch memory (below 1 MiB per member, and a packed copy of the smaller operand, at most 8 MiB) belongs to the
// threads and is kept by them.
#pragma once

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/isa/bf16_products.h"
#include "kernels/isa/isa.h"
#include "kernels/threads.h"

namespace neuron::kernels {

enum class Activation : std::uint8_t { kNone, kRelu, kSilu, kGeluErf, kGeluTanh };

// Strides are in elements and may be anything, 0 included. What is fast: a unit stride along one of the two dimensions.
struct MatrixView {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t batch_stride = 0;
};

// A matrix [M, N] that is added; strides of 0 broadcast a row (a bias), a column, or one number. It may be C itself.
struct Addend {
  MatrixView view{};
  DataType type = DataType::kFloat32;
  float scale = 1;
};

// For every element, in float: activation(scale * product + addend.scale * addend) + residual.scale * residual, rounded once.
struct Epilogue {
  float scale = 1;
  Addend addend{};  // absent if its data is null: then nothing is read, so NaN does not spread
  Activation activation = Activation::kNone;
  Addend residual{};
};

struct Matmul {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DataType type = DataType::kFloat32;    // of A and B
  DataType c_type = DataType::kFloat32;  // of C
  MatrixView a{};                        // [M, K]
  MatrixView b{};                        // [K, N]
  // If set: C = activation(A * B) * (A * gate) with the epilogue's scale on both products; addend and residual are not used.
  MatrixView gate{};
  void* c = nullptr;  // [M, N]; must not overlap A or B
  std::int64_t c_row_stride = 0;
  std::int64_t c_column_stride = 1;
  std::int64_t c_batch_stride = 0;
  Epilogue epilogue{};
};

// One entry of the batch as a problem of its own.
Matmul entry_of(const Matmul& problem, std::int64_t index);

// No size may be negative; K = 0 means a product of zeros. Throws std::bad_alloc, and what current_isa() and bf16_products() throw.
void matmul(const Matmul& problem, Threads& threads);

// The same at one level that the machine runs, for tests.
void matmul(const Matmul& problem, Threads& threads, Isa isa, Bf16Products products);

}  // namespace neuron::kernels
