// The matrix product as an instruction of ours, with what happens to its elements before they reach memory:
//   %9 = neuron::matmul(%x, %w, addend=%bias, activation="gelu", residual=%h): bf16[8,128,768]@neuron:0
// For matrices x [m,k] and w [k,n], or batches of them, every element is, in float32 and rounded once,
//   activation(scale * product + addend_scale * addend) + residual_scale * residual
//   activation(scale * x w) * (scale * x gate)                                        with gate=%g, of the sizes of w
// The result is contiguous and may have any sizes that divide m and n (and the batch) into whole dimensions; addend and residual are
// broadcast to it. `a_picks=%i` (or `b_picks`): entry j of the batch multiplies matrix i[j] of the operand, which is how experts are chosen
// without a copy of their weights.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "compiler/program.h"
#include "kernels/matmul/matmul.h"

namespace neuron::compiler {

inline constexpr const char* kMatmul = "neuron::matmul";

struct Product {
  ValueId a = kNoValue;
  ValueId b = kNoValue;
  ValueId a_picks = kNoValue;
  ValueId b_picks = kNoValue;
  ValueId gate = kNoValue;
  double scale = 1;
  ValueId addend = kNoValue;
  double addend_scale = 1;
  kernels::Activation activation = kernels::Activation::kNone;
  ValueId residual = kNoValue;
  double residual_scale = 1;

  bool is_plain() const {
    return gate == kNoValue && scale == 1 && addend == kNoValue && activation == kernels::Activation::kNone && residual == kNoValue;
  }
};

struct ProductSizes {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Of an instruction with the opcode kMatmul. Nothing if an operand is not one of those above.
std::optional<Product> product_of(const Instruction& instruction);
Instruction to_instruction(const Product& product, ValueId result);

// Nothing if the matrices do not fit each other, or are none.
std::optional<ProductSizes> sizes_of(const Program& program, const Product& product);

// In elements, by batch entry, row and column of the product: how a tensor that is broadcast to the result's sizes is read. Nothing if that
// is no matrix: a dimension that takes from two of the three, or a row with several strides.
std::optional<std::array<std::int64_t, 3>> strides_within(const TensorType& operand, const std::vector<std::int64_t>& result_sizes,
                                                          const ProductSizes& sizes);

// The element types that the kernels multiply.
std::optional<kernels::DataType> matrix_type(const Type& type);

// What is wrong with an instruction of this opcode; nothing if it is well formed.
std::optional<std::string> find_fault(const Program& program, const Instruction& instruction);

}  // namespace neuron::compiler
