// Operands, sizes and well-formedness of matrix products.
#include "compiler/matmul.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace neuron::compiler {
namespace {

using kernels::Activation;

constexpr std::array<std::pair<std::string_view, Activation>, 4> kActivations{{
    {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},
    {"gelu", Activation::kGeluErf},
    {"gelu_tanh", Activation::kGeluTanh},
}};

constexpr std::array<std::pair<std::string_view, ValueId Product::*>, 5> kTensors{{
    {"a_picks", &Product::a_picks},
    {"b_picks", &Product::b_picks},
    {"gate", &Product::gate},
    {"addend", &Product::addend},
    {"residual", &Product::residual},
}};

constexpr std::array<std::pair<std::string_view, double Product::*>, 3> kScales{{
    {"scale", &Product::scale},
    {"addend_scale", &Product::addend_scale},
    {"residual_scale", &Product::residual_scale},
}};

bool read_named(const Operand& operand, Product& product) {
  for (const auto& [name, member] : kTensors) {
    if (operand.name == name) {
      const auto* ref = operand.value.get_if<ValueRef>();
      product.*member = ref == nullptr ? kNoValue : ref->id;
      return ref != nullptr;
    }
  }
  for (const auto& [name, member] : kScales) {
    if (operand.name == name) {
      const auto* number = operand.value.get_if<double>();
      product.*member = number == nullptr ? 1 : *number;
      return number != nullptr;
    }
  }
  const auto* text = operand.value.get_if<std::string>();
  for (const auto& [name, activation] : kActivations) {
    if (operand.name == "activation" && text != nullptr && *text == name) {
      product.activation = activation;
      return true;
    }
  }
  return false;
}

// The batch of a matrix operand of which `picks` may choose; nothing if it is no matrix.
std::optional<std::int64_t> batch_of(const Program& program, const TensorType& matrix, ValueId picks) {
  if (picks != kNoValue) {
    const Type& type = program.type_of(picks);
    const bool fits = type.is_tensor() && type.tensor.scalar == ScalarKind::kInt64 && type.tensor.sizes.size() == 1;
    return fits && matrix.sizes.size() == 3 ? std::optional(type.tensor.sizes[0]) : std::nullopt;
  }
  return matrix.sizes.size() == 3 ? std::optional(matrix.sizes[0]) : matrix.sizes.size() == 2 ? std::optional(std::int64_t{1}) : std::nullopt;
}

}  // namespace

std::optional<Product> product_of(const Instruction& instruction) {
  Product product;
  product.a = operand_value(instruction, 0);
  product.b = operand_value(instruction, 1);
  if (product.a == kNoValue || product.b == kNoValue) {
    return std::nullopt;
  }
  for (std::size_t i = 2; i < instruction.operands.size(); ++i) {
    if (!read_named(instruction.operands[i], product)) {
      return std::nullopt;
    }
  }
  return product;
}

Instruction to_instruction(const Product& product, ValueId result) {
  Instruction instruction;
  instruction.opcode = kMatmul;
  instruction.results = {result};
  instruction.operands = {{Argument::value(product.a), {}}, {Argument::value(product.b), {}}};
  for (const auto& [name, member] : kTensors) {
    if (product.*member != kNoValue) {
      instruction.operands.push_back({Argument::value(product.*member), std::string(name)});
    }
  }
  for (const auto& [name, member] : kScales) {
    if (product.*member != 1) {
      instruction.operands.push_back({Argument(product.*member), std::string(name)});
    }
  }
  for (const auto& [name, activation] : kActivations) {
    if (product.activation == activation) {
      instruction.operands.push_back({Argument(std::string(name)), "activation"});
    }
  }
  return instruction;
}

std::optional<kernels::DataType> matrix_type(const Type& type) {
  if (!type.is_tensor() || type.tensor.place.type != "neuron") {
    return std::nullopt;
  }
  switch (type.tensor.scalar) {
    case ScalarKind::kFloat32:
      return kernels::DataType::kFloat32;
    case ScalarKind::kBFloat16:
      return kernels::DataType::kBFloat16;
    case ScalarKind::kFloat16:
      return kernels::DataType::kFloat16;
    default:
      return std::nullopt;
  }
}

std::optional<ProductSizes> sizes_of(const Program& program, const Product& product) {
  const auto type = matrix_type(program.type_of(product.a));
  if (!type || matrix_type(program.type_of(product.b)) != type) {
    return std::nullopt;
  }
  const TensorType& a = program.type_of(product.a).tensor;
  const TensorType& b = program.type_of(product.b).tensor;
  const auto batch = batch_of(program, a, product.a_picks);
  if (!batch || a.sizes.size() != b.sizes.size() || batch_of(program, b, product.b_picks) != batch) {
    return std::nullopt;
  }
  const std::size_t rows = a.sizes.size() - 2;
  if (a.sizes[rows + 1] != b.sizes[rows]) {
    return std::nullopt;
  }
  if (product.gate != kNoValue) {
    const Type& gate = program.type_of(product.gate);
    if (matrix_type(gate) != type || gate.tensor.sizes != b.sizes || product.addend != kNoValue || product.residual != kNoValue) {
      return std::nullopt;
    }
  }
  return ProductSizes{*batch, a.sizes[rows], b.sizes[rows + 1], a.sizes[rows + 1]};
}

std::optional<std::array<std::int64_t, 3>> strides_within(const TensorType& operand, const std::vector<std::int64_t>& result_sizes,
                                                          const ProductSizes& sizes) {
  const std::array<std::int64_t, 3> extents{sizes.batch, sizes.m, sizes.n};
  std::array<std::int64_t, 3> strides{0, 0, 0};
  if (operand.sizes.size() > result_sizes.size()) {
    return std::nullopt;
  }
  const std::size_t shift = result_sizes.size() - operand.sizes.size();
  for (std::size_t i = 0; i < operand.sizes.size(); ++i) {
    if (operand.sizes[i] != 1 && operand.sizes[i] != result_sizes[i + shift]) {
      return std::nullopt;
    }
  }
  if (sizes.batch * sizes.m * sizes.n == 0) {
    return strides;
  }
  // From the right, each takes dimensions until it is full.
  std::size_t dim = result_sizes.size();
  for (std::size_t at = extents.size(); at-- > 0;) {
    std::int64_t covered = 1;
    while (covered < extents[at]) {
      if (dim == 0) {
        return std::nullopt;
      }
      const std::int64_t size = result_sizes[--dim];
      if (extents[at] % (covered * size) != 0) {
        return std::nullopt;
      }
      if (size == 1) {
        continue;
      }
      const bool repeats = dim < shift || operand.sizes[dim - shift] == 1;
      const std::int64_t stride = repeats ? 0 : operand.strides[dim - shift];
      if (covered == 1) {
        strides[at] = stride;
      } else if (stride != strides[at] * covered) {
        return std::nullopt;
      }
      covered *= size;
    }
  }
  return strides;
}

std::optional<std::string> find_fault(const Program& program, const Instruction& instruction) {
  const auto product = product_of(instruction);
  if (!product || instruction.results.size() != 1 || instruction.results[0] == kNoValue) {
    return "a matrix product has operands or results that it cannot have";
  }
  const auto sizes = sizes_of(program, *product);
  if (!sizes) {
    return "matrices do not fit each other";
  }
  const Type& result = program.type_of(instruction.results[0]);
  if (matrix_type(result) != matrix_type(program.type_of(product->a)) || !result.tensor.is_contiguous() ||
      result.tensor.element_count() != sizes->batch * sizes->m * sizes->n) {
    return "a matrix product has a result of another type";
  }
  for (const ValueId added : {product->addend, product->residual}) {
    if (added != kNoValue && (!matrix_type(program.type_of(added)) ||
                              !strides_within(program.type_of(added).tensor, result.tensor.sizes, *sizes))) {
      return "what is added to a matrix product does not fit it";
    }
  }
  return std::nullopt;
}

}  // namespace neuron::compiler
